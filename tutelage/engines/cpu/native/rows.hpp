// Work on the rows of a tensor, divided into parts that do not depend on the number of threads.
#pragma once

#include "threads.hpp"

namespace {

constexpr long PART = 1 << 16;  // floats: a smaller part does not pay for a thread

inline long parts_of(long rows, long width) { return std::min(rows, rows * width / PART + 1); }

// Calls work(part, first, end) for parts of `rows` rows of `width` floats. The parts, and so the order in which each is
// summed, are the same for any number of threads.
template <class Work>
void for_rows(const ThreadPool &pool, long rows, long width, const Work &work) {
    const long parts = parts_of(rows, width);
    run_phases(pool, 1, [&](Worker &worker) {
        worker.share(parts, parts,
                 [&](long part, long) { work(part, rows * part / parts, rows * (part + 1) / parts); });
    });
}

}  // namespace
