"""The suites of single systems run, and their figures are those of plans and simulations."""


def list_methods(benchmark, prefix):
    return [name for name in dir(benchmark) if name.startswith(prefix)]


def test_every_stage_of_hongtus_planning_can_be_timed(import_suite):
    suite = import_suite("hongtu")
    benchmark = suite.Planning()
    timed = list_methods(benchmark, "time_")
    assert len(timed) == 6
    assert benchmark.params == [suite.GRAPHS, suite.CHUNKS]
    values = ("cora", min(suite.CHUNKS))
    benchmark.setup(*values)
    for name in timed:
        getattr(benchmark, name)(*values)


def test_hpgnns_mini_batch_is_simulated(monkeypatch, import_suite):
    suite, graph = import_suite("hpgnn"), "sbm:vertices=600,edges=3000,features=256,classes=3"
    monkeypatch.setattr(suite, "REPEATS", 1)
    benchmark = suite.CycleModel()
    benchmark.setup(graph)
    benchmark.time_mini_batch(graph)
    cycles = benchmark.track_cycles(graph)
    assert cycles == benchmark.track_cycles(graph) > 0
    for track in (benchmark.track_wide_edge_words, benchmark.track_narrow_edge_words):
        assert track(graph) > 0
        assert track.unit == "edge-words/s"


def test_mixgcns_machines_are_timed_and_tracked(monkeypatch, import_suite):
    suite = import_suite("machines")
    monkeypatch.setattr(suite, "GRAPHS", {"orkut": 512})
    graphs, machines = suite.Machines.params
    assert graphs == ["reddit", "orkut"]
    assert machines == ["SPU", "HyGCN", "AWB-GCN"]
    seconds = set()
    for machine in machines:
        benchmark = suite.Machines()
        benchmark.setup("orkut", machine)
        assert benchmark.machine.name == machine
        benchmark.time_simulate("orkut", machine)
        seconds.add(benchmark.track_modelled_seconds("orkut", machine))
        assert benchmark.track_modelled_seconds("orkut", machine) in seconds
        # Every row that has an edge is read at least once, and half of the outputs are written.
        outputs = 4 * suite.WIDTH * benchmark.matrix.num_dst
        assert benchmark.track_hbm_bytes("orkut", machine) > 1.4 * outputs
        assert 0 < benchmark.track_occupancy("orkut", machine) < 1
    assert len(seconds) == 3


def test_mixgcns_figures_agree_with_each_other(monkeypatch, import_suite):
    suite, graph = import_suite("mixgcn"), "sbm:vertices=600,edges=1500,features=8,classes=3"
    monkeypatch.setattr(suite, "GRAPHS", [graph])
    count = 0
    for timed in (suite.Ordering(), suite.Planning()):
        timed.setup(graph)
        for name in list_methods(timed, "time_"):
            getattr(timed, name)(graph)
            count += 1
    assert count == 6
    benchmark = suite.Plan()
    figures = benchmark.setup_cache()
    names = list_methods(benchmark, "track_")
    tracked = {name: getattr(benchmark, name)(figures, graph) for name in names}
    assert len(tracked) == len(figures) == 5
    width = tracked["track_bandwidth"]
    assert tracked["track_stages"] == min(-(-1200 // (600 - width)), 64)
    # Forward f^0, f^1 to update, twice f^1 between layers, and backward.
    assert tracked["track_all_to_all_bytes"] == 600 * 4 * (8 + 4 * 128 + 4 * 128)
