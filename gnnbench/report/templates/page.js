// What can be done on a page of results: sort, choose columns, filter, link to a row, download.
// Nothing is asked of a network. Sort, columns, filters and row are kept in the address's fragment:
// #row=full-graph.hongtu&sort=energy-modelled.down&columns=epoch-modelled,energy-modelled&model=gcn
"use strict";
(() => {
  const tables = [...document.querySelectorAll("table.results")];
  const boxes = [...document.querySelectorAll("input[data-column]")];
  const choices = [...document.querySelectorAll("select[data-filter]")];
  const points = [...document.querySelectorAll("[data-row]")];
  const said = document.querySelector("[role=status]");
  const usual = new Set(boxes.filter((box) => box.defaultChecked).map((box) => box.dataset.column));
  const known = new Set(boxes.map((box) => box.dataset.column));
  const rowsOf = new Map(tables.map((table) => [table, [...table.tBodies[0].rows]]));
  const heads = tables.flatMap((table) => [...table.tHead.rows[0].cells]);
  let state = { sort: "", falling: false, columns: usual, filters: {}, row: "" };

  function decode(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return "";
    }
  }

  // What a fragment asks for; words that mean nothing here are left out.
  function read() {
    const words = location.hash.slice(1).split("&").map((word) => word.split("="));
    const said = Object.fromEntries(words.map(([name, value]) => [name, decode(value ?? "")]));
    const dot = (said.sort ?? "").lastIndexOf(".");
    const key = (said.sort ?? "").slice(0, dot);
    const sort = heads.some((head) => head.dataset.key === key) ? key : "";
    const chosen = (said.columns ?? "").split(",").filter((name) => known.has(name));
    const columns = "columns" in said ? new Set(chosen) : usual;
    const wanted = choices.map(({ dataset: { filter }, options }) =>
      [filter, [...options].some((each) => each.value === said[filter]) ? said[filter] : ""]);
    const filters = Object.fromEntries(wanted);
    return { sort, falling: said.sort?.endsWith(".down") ?? false, columns, filters, row: said.row ?? "" };
  }

  function write() {
    const { sort, falling, columns, filters, row } = state;
    const same = columns.size === usual.size && [...columns].every((name) => usual.has(name));
    const words = [];
    if (row) words.push(`row=${encodeURIComponent(row)}`);
    if (sort) words.push(`sort=${sort}.${falling ? "down" : "up"}`);
    if (!same) words.push(`columns=${boxes.map((b) => b.dataset.column).filter((n) => columns.has(n)).join(",")}`);
    for (const [name, value] of Object.entries(filters)) if (value) words.push(`${name}=${encodeURIComponent(value)}`);
    history.replaceState(null, "", words.length ? `#${words.join("&")}` : location.pathname + location.search);
  }

  function compare(one, other) {
    const [a, b] = [Number(one), Number(other)];
    return Number.isNaN(a) || Number.isNaN(b) ? one.localeCompare(other) : a - b;
  }

  // The lines of a table in the order asked for; those without a value stay below.
  function order(table, place) {
    const rows = rowsOf.get(table);
    if (place < 0) return rows;
    const value = (row) => row.cells[place]?.dataset.value;
    const filled = rows.filter((row) => value(row) !== undefined);
    filled.sort((one, other) => compare(value(one), value(other)) * (state.falling ? -1 : 1));
    return [...filled, ...rows.filter((row) => value(row) === undefined)];
  }

  // Whether a filter leaves a line out; a line without such a fact stays.
  function isOut(row) {
    return Object.entries(state.filters).some(([name, value]) => value && (row.dataset[name] ?? value) !== value);
  }

  function show() {
    for (const table of tables) {
      const cells = [...table.tHead.rows[0].cells];
      const hidden = cells.map((head) => known.has(head.dataset.key) && !state.columns.has(head.dataset.key));
      const left = hidden.filter((each) => !each).length;
      cells.forEach((head, place) => {
        head.hidden = hidden[place];
        const on = head.dataset.key === state.sort;
        head.ariaSort = on ? (state.falling ? "descending" : "ascending") : "none";
      });
      for (const row of rowsOf.get(table)) {
        const failed = row.querySelector(".reason");
        if (failed) failed.colSpan = Math.max(1, left - 1);
        else [...row.cells].forEach((cell, place) => (cell.hidden = hidden[place]));
        row.classList.toggle("chosen", row.id !== "" && row.id === state.row);
        row.classList.toggle("out", isOut(row));
      }
      const place = state.sort ? cells.findIndex((head) => head.dataset.key === state.sort) : -1;
      table.tBodies[0].append(...order(table, place));
    }
    for (const box of boxes) box.checked = state.columns.has(box.dataset.column);
    for (const choice of choices) choice.value = state.filters[choice.dataset.filter];
    for (const point of points) {
      point.classList.toggle("out", document.getElementById(point.dataset.row).classList.contains("out"));
    }
  }

  function change(what) {
    const focused = document.activeElement;
    state = { ...state, ...what };
    write();
    show();
    focused?.focus({ preventScroll: true }); // A line that moves in the table loses it.
  }

  function open() {
    state = read();
    show();
    const row = [...rowsOf.values()].flat().find((each) => each.id && each.id === state.row);
    row?.scrollIntoView({ block: "center" });
    row?.querySelector("a")?.focus({ preventScroll: true });
  }

  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const key = head.dataset.key;
      // Rising, then falling, then as it was.
      const again = state.sort === key;
      change({ sort: again && state.falling ? "" : key, falling: again && !state.falling });
      const order = state.falling ? "falling" : "rising";
      said.textContent = state.sort ? `Sorted by ${head.dataset.name}, ${order}.` : "In the order of the comparison.";
    });
  }
  for (const box of boxes) {
    box.addEventListener("change", () => {
      change({ columns: new Set(boxes.filter((each) => each.checked).map((each) => each.dataset.column)) });
    });
  }
  for (const choice of choices) {
    choice.addEventListener("change", () => {
      change({ filters: { ...state.filters, [choice.dataset.filter]: choice.value } });
      const rows = [...document.querySelectorAll("table.results tr[id]")];
      said.textContent = `${rows.filter((row) => !isOut(row)).length} of ${rows.length} rows.`;
    });
  }
  for (const button of document.querySelectorAll("button[data-columns]")) {
    button.addEventListener("click", () => change({ columns: button.dataset.columns === "all" ? known : usual }));
  }
  for (const link of document.querySelectorAll("table.results tbody a")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const { id } = link.closest("tr");
      change({ row: state.row === id ? "" : id });
    });
  }

  function save(name, content, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  // A copy of a drawing that keeps its looks away from the page, at a place in another one.
  function copyOut(drawing, x, y, width, height) {
    const copy = drawing.cloneNode(true);
    const from = drawing.querySelectorAll("*");
    const looks = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "display",
      "font-family", "font-size", "font-weight", "paint-order"];
    copy.querySelectorAll("*").forEach((shape, number) => {
      const style = getComputedStyle(from[number]);
      for (const look of looks) shape.style.setProperty(look, style.getPropertyValue(look));
    });
    for (const [name, value] of Object.entries({ x, y, width, height, overflow: "visible" })) copy.setAttribute(name, value);
    for (const name of ["style", "class"]) copy.removeAttribute(name);
    return new XMLSerializer().serializeToString(copy);
  }

  // A figure that stands by itself: its drawing, its legend below, and the page behind it.
  function detach(figure) {
    const drawing = figure.querySelector("svg");
    const page = getComputedStyle(document.body);
    const { width: inner, height: tall } = drawing.getBoundingClientRect();
    const { marginLeft, marginRight } = getComputedStyle(drawing);
    const [left, right] = [marginLeft, marginRight].map(Number.parseFloat);
    const width = Math.round(inner + left + right + 20);
    const pieces = [copyOut(drawing, left + 10, 6, inner, tall)];
    let [x, y] = [10, tall + 24];
    for (const entry of figure.querySelectorAll(".legend li")) {
      const sample = entry.querySelector("svg");
      const { width: own, height } = sample.getBoundingClientRect();
      const name = entry.textContent.trim();
      const needed = own + 20 + 7 * name.length;
      if (x > 10 && x + needed > width) [x, y] = [10, y + 20];
      const label = Object.assign(document.createElement("i"), { textContent: name }).innerHTML;
      pieces.push(copyOut(sample, x, y - 6, own, height));
      pieces.push(`<text x="${x + own + 6}" y="${y}" dominant-baseline="central" font-size="12" font-family="sans-serif" fill="${page.color}">${label}</text>`);
      x += needed;
    }
    const height = Math.round(y + 14);
    const text = `<svg xmlns="${drawing.namespaceURI}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
      `<rect width="${width}" height="${height}" fill="${page.backgroundColor}"/>${pieces.join("")}</svg>`;
    return { text, width, height };
  }

  async function paint({ text, width, height }) {
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await picture.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * width, 2 * height];
    canvas.getContext("2d").drawImage(picture, 0, 0, 2 * width, 2 * height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  const data = JSON.parse(document.getElementById("data").textContent);
  const ways = {
    csv: async () => save(`${data.name}.csv`, data.csv, "text/csv"),
    json: async () => save(`${data.name}.json`, data.json, "application/json"),
    svg: async (figure) => save(`${figure.dataset.name}.svg`, detach(figure).text, "image/svg+xml"),
    png: async (figure) => save(`${figure.dataset.name}.png`, await paint(detach(figure))),
  };
  for (const button of document.querySelectorAll("button[data-save]")) {
    button.addEventListener("click", () => {
      ways[button.dataset.save](button.closest("figure")).catch((error) => {
        said.textContent = `It could not be saved: ${error}`;
      });
    });
  }

  document.documentElement.classList.add("alive");
  addEventListener("hashchange", open);
  open();
})();
