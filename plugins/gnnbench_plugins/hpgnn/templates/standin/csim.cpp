// The board of the C simulation: calls the kernels, and prints the counts of each launch of
// aggregate, one JSON object a line.

#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "types.h"
#include "xrt/xrt_kernel.h"

Counts counts;

extern "C" void aggregate(const edge_t *, const word_t *, word_t *, int, int, int, int, int);
extern "C" void update(const word_t *, const word_t *, const int32_t *, const word_t *,
                       const word_t *, const word_t *, const word_t *, word_t *, int, int, int,
                       int, int, int, int);

namespace {

template <typename T>
T *as(const standin::Argument &argument) {
    return static_cast<T *>(argument.address);
}

void print(const char *name, const int64_t *values, int count) {
    std::cout << ", \"" << name << "\": [";
    for (int i = 0; i < count; i++) std::cout << (i ? ", " : "") << values[i];
    std::cout << "]";
}

void print_counts(const std::string &compute_unit) {
    std::cout << "{\"kernel\": \"" << compute_unit << "\", \"rows_loaded\": " << counts.rows_loaded
              << ", \"words_loaded\": " << counts.words_loaded;
    print("edges", counts.edges, N);
    print("updates", counts.updates, N);
    print("link_words", &counts.link_words[0][0], (STAGES + 1) * N);
    std::cout << "}" << std::endl;
}

}  // namespace

void standin::launch(const std::string &compute_unit, const std::vector<Argument> &a) {
    if (compute_unit.rfind("aggregate:", 0) == 0 && a.size() == 8) {
        counts = Counts();
        aggregate(as<edge_t>(a[0]), as<word_t>(a[1]), as<word_t>(a[2]), a[3].number, a[4].number,
                  a[5].number, a[6].number, a[7].number);
        print_counts(compute_unit);
    } else if (compute_unit.rfind("update:", 0) == 0 && a.size() == 15) {
        update(as<word_t>(a[0]), as<word_t>(a[1]), as<int32_t>(a[2]), as<word_t>(a[3]),
               as<word_t>(a[4]), as<word_t>(a[5]), as<word_t>(a[6]), as<word_t>(a[7]), a[8].number,
               a[9].number, a[10].number, a[11].number, a[12].number, a[13].number, a[14].number);
    } else {
        throw std::invalid_argument("there is no kernel " + compute_unit);
    }
}
