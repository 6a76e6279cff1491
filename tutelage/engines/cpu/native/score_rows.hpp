// The scores of one query: those of the tokens of a prefix in the first columns, those of its own tokens after them, each
// padded to whole vectors of 16.
#pragma once

#include <cmath>

#include "half.hpp"
#include "kernel.hpp"

namespace {

// The largest score, and the sum of the numerators exp(score - most).
struct SoftmaxSum {
    float most, sum;

    float log_sum_exp() const { return most + std::log(sum); }
};

struct ScoreRow {
    float *x;
    long prefix, prefix_columns, own, own_columns;  // tokens, and columns with the padding

    long columns() const { return prefix_columns + own_columns; }

    void scale(float factor) const {
        for (long i = 0; i < columns(); i += LANES) store(x + i, factor * load(x + i));
    }

    float largest() const {
        const Floats most = largest_of(x, prefix, Floats(x[prefix_columns]));
        return ::largest(largest_of(x + prefix_columns, own, most));
    }

    // Replaces the scores by y = change(x [16]), and the padding by 0. Calls done(column, y) for all vectors.
    template <class Change, class Done>
    void each(const Change &change, const Done &done) const {
        change_some(0, prefix, prefix_columns, change, done);
        change_some(prefix_columns, own, columns(), change, done);
    }

    // Replaces the scores by the numerators of their softmax.
    SoftmaxSum softmax() const {
        const float most = largest();
        Floats sums{};
        each([&](Floats part) { return exponential(part - most); }, [&](long, Floats y) { sums += y; });
        return {most, sum(sums)};
    }

    // The same in bfloat16, in the first half of the place of the scores. The sum is that of numbers that are not rounded.
    SoftmaxSum half_softmax() const {
        const float most = largest();
        Floats sums{};
        each([&](Floats part) { return exponential(part - most); }, [](long, Floats) {});
        for (long i = 0; i < columns(); i += LANES) {  // what is written ends before what is read next
            const Floats part = load(x + i);
            store(reinterpret_cast<Half *>(x) + i, part), sums += part;
        }
        return {most, sum(sums)};
    }

   private:
    // The maximum of `most` and the first `valid` scores, lane by lane.
    static Floats largest_of(const float *x, long valid, Floats most) {
        long i = 0;
        for (; i + LANES <= valid; i += LANES) most = larger(load(x + i), most);
        return i < valid ? larger(first_of(load(x + i), static_cast<int>(valid - i), most), most) : most;
    }

    // The scores from column `i` to `end`, of which the first `valid` are tokens.
    template <class Change, class Done>
    void change_some(long i, long valid, long end, const Change &change, const Done &done) const {
        const auto put = [&](Floats y) {
            y = in_registers(y);  // no compiler joins its last product with a sum
            store(x + i, y), done(i, y);
        };
        const long last = i + valid;
        for (; i + LANES <= last; i += LANES) put(change(load(x + i)));
        if (i < last) put(first_of(change(load(x + i)), static_cast<int>(last - i), Floats{})), i += LANES;
        for (; i < end; i += LANES) put({});
    }
};

}  // namespace
