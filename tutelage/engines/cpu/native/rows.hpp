// Work on the rows of a tensor.
#pragma once

#include "threads.hpp"

namespace {

constexpr long PART = 1 << 16;   // floats of a part that is summed by itself
constexpr long SHARE = 1 << 13;  // floats that a thread takes at once

inline long parts_of(long rows, long width) { return std::min(rows, rows * width / PART + 1); }

// Calls work(first, end) for ranges of `rows` rows of `width` floats.
template <class Work>
void for_rows(const ThreadPool &pool, long rows, long width, const Work &work) {
    run_phases(pool, 1, [&](Worker &worker) { worker.share(rows, rows * width / SHARE + 1, work); });
}

// Calls work(part, first, end) for parts that do not depend on the number of threads, nor does the order in which each is
// summed.
template <class Work>
void for_parts(const ThreadPool &pool, long rows, long width, const Work &work) {
    const long parts = parts_of(rows, width);
    run_phases(pool, 1, [&](Worker &worker) {
        worker.share(parts, parts,
                     [&](long part, long) { work(part, rows * part / parts, rows * (part + 1) / parts); });
    });
}

}  // namespace
