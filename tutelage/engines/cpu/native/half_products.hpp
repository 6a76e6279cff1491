// The matrix product of a decoding step with weights in bfloat16 (see kernel.hpp): pairs of features k, k + 1 at a time,
//     C[r][0..15] += A[k][r] * B[k][0..15] + A[k + 1][r] * B[k + 1][0..15]
// with sums in float32. B is stored in pairs, [in / 2][16][2], and so is A where the processor multiplies pairs;
// elsewhere A is stored in float32, [in][16], and B is widened. In both forms A is rounded to bfloat16.
#pragma once

#include "kernel.hpp"
#include "pairs.hpp"

namespace {

// Writes `count` consecutive features of line r, from `first` on, into a block of 16 lines. Both are even.
INLINE void put_pairs(float *block, long r, long first, long count, const float *x) {
    alignas(64) float part[LANES] = {};
    std::copy_n(x, count, part);
    alignas(64) Pair pairs[LANES / 2];
    store(reinterpret_cast<Half *>(pairs), load(part));
    for (long i = 0; i < count / 2; i++) {
        if constexpr (MULTIPLIES_PAIRS) {
            std::memcpy(block + (first / 2 + i) * LANES + r, pairs + i, sizeof(Pair));
        } else {
            const Pair two[2] = {pairs[i] << 16, pairs[i] & 0xffff0000u};
            for (int odd = 0; odd < 2; odd++)
                std::memcpy(block + (first + 2 * i + odd) * LANES + r, two + odd, sizeof(Pair));
        }
    }
}

#if defined(__AVX512BF16__)

template <int R>
INLINE void some_half_rows(const float *a, const Pair *b, long pairs, float *c) {
    Floats sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sums[r] = load(c + r * LANES);
    for (long k = 0; k < pairs; k++, a += LANES, b += LANES) {
        __builtin_prefetch(b + AHEAD, 0, 2);
        const Pairs column = columns_at(b);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) add_product(sums[r], spread(reinterpret_cast<const Pair *>(a + r)), column);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) store(c + r * LANES, sums[r]);
}

#else

template <int R>
INLINE void some_half_rows(const float *a, const Pair *b, long pairs, float *c) {
    Floats sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sums[r] = load(c + r * LANES);
    for (long k = 0; k < pairs; k++, a += 2 * LANES, b += LANES) {
        __builtin_prefetch(b + AHEAD, 0, 2);
        const Floats even = in_registers(widened<false>(b)), odd = in_registers(widened<true>(b));
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) sums[r] += a[r] * even;
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) sums[r] += a[LANES + r] * odd;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) store(c + r * LANES, sums[r]);
}

#endif

template <int R = PAIR_ROWS>
INLINE void up_to_half(int rows, const float *a, const Pair *b, long pairs, float *c) {
    if (rows == R) return some_half_rows<R>(a, b, pairs, c);
    if constexpr (R > 1) up_to_half<R - 1>(rows, a, b, pairs, c);
}

// C [rows][16] = A B for up to 16 rows, in runs of about equal size, piece by piece (see `add_product`).
void set_half_product(int rows, const float *a, const Pair *b, long pairs, float *c) {
    std::fill_n(c, rows * LANES, 0.0f);
    const long of_pair = MULTIPLIES_PAIRS ? LANES : 2 * LANES;
    const int runs = (rows + PAIR_ROWS - 1) / PAIR_ROWS;
    const long piece = runs > 1 ? PIECE : pairs;
    for (long k = 0; k < pairs; k += piece, a += piece * of_pair, b += piece * LANES)
        for (int run = 0, first = 0; run < runs; run++) {
            const int end = rows * (run + 1) / runs;
            up_to_half(end - first, a + first, b, std::min(piece, pairs - k), c + first * LANES);
            first = end;
        }
}

}  // namespace
