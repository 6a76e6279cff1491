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
        const Floats most = larger(x, prefix, Floats(x[prefix_columns]));
        return ::largest(larger(x + prefix_columns, own, most));
    }

    // Replaces the scores by change(x [16]), and the padding by 0.
    template <class Change>
    void each(const Change &change) const {
        change_some(x, prefix, prefix_columns, change);
        change_some(x + prefix_columns, own, own_columns, change);
    }

    // Replaces the scores by the numerators of their softmax.
    SoftmaxSum softmax() const {
        const float most = exponentiate();
        Floats sums{};
        for (long i = 0; i < columns(); i += LANES) sums += load(x + i);
        return {most, sum(sums)};
    }

    // The same in bfloat16, in the first half of the place of the scores. The sum is that of numbers that are not rounded.
    SoftmaxSum half_softmax() const {
        const float most = exponentiate();
        Floats sums{};
        for (long i = 0; i < columns(); i += LANES) {  // what is written ends before what is read next
            const Floats part = load(x + i);
            store(reinterpret_cast<Half *>(x) + i, part), sums += part;
        }
        return {most, sum(sums)};
    }

   private:
    float exponentiate() const {
        const float most = largest();
        each([&](Floats part) { return exponential(part - most); });
        return most;
    }

    template <class Change>
    static void change_some(float *x, long valid, long columns, const Change &change) {
        long i = 0;
        for (; i + LANES <= valid; i += LANES) store(x + i, change(load(x + i)));
        if (i < valid) {
            alignas(64) float part[LANES];
            store(part, change(load(x + i)));
            for (long j = 0; j < LANES; j++) x[i + j] = i + j < valid ? part[j] : 0.0f;
            i += LANES;
        }
        for (; i < columns; i += LANES) store(x + i, Floats{});
    }
};

}  // namespace
