// The matrix product that a decoding step consists of: up to 16 rows of A, which is stored column by column, times a
// panel of B that is 16 columns wide:
//     C[r][0..15] += sum over k of A[k][r] * B[k][0..15]
// A is the input of up to 16 lines and B a panel of weights, or A are keys and B queries, or A probabilities and B
// values.
#pragma once

#include "vectors.hpp"

namespace {

constexpr int ROWS = std::min<int>(LANES, (REGISTERS - 1) / PARTS - 1);  // rows whose sums stay in registers
constexpr long PIECE = 64;  // rows of B
constexpr long AHEAD = PIECE * LANES;  // floats: the distance at which a panel is prefetched

INLINE long round_up(long x, long multiple) { return (x + multiple - 1) / multiple * multiple; }
INLINE long pieces(long count, long each) { return (count + each - 1) / each; }
INLINE long blocks_of(long lines) { return pieces(lines, LANES); }

// The maximum of `most` and `count` numbers, lane by lane.
INLINE Floats larger(const float *x, long count, Floats most) {
    long i = 0;
    for (; i + LANES <= count; i += LANES) most = larger(load(x + i), most);
    for (; i < count; i++) most = larger(Floats(x[i]), most);
    return most;
}

template <int R>
INLINE void some_rows(const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    Floats sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sums[r] = load(c + r * LANES);
    for (long k = 0; k < depth; k++) {
        __builtin_prefetch(b + AHEAD, 0, 2);
        const Floats column = in_registers(load(b));
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) sums[r] += a[r] * column;
        a += a_step, b += b_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) store(c + r * LANES, sums[r]);
}

template <int R = ROWS>
INLINE void up_to(int rows, const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    if (rows == R) return some_rows<R>(a, a_step, b, b_step, depth, c);
    if constexpr (R > 1) up_to<R - 1>(rows, a, a_step, b, b_step, depth, c);
}

// C [rows][16] += A B for up to 16 rows, in runs of about equal size, since a short run would wait for its own sums.
// Several runs take B piece by piece, so that the next piece is being prefetched all the time.
void add_product(int rows, const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    const int runs = (rows + ROWS - 1) / ROWS;
    const long piece = runs > 1 ? PIECE : depth;
    for (long k = 0; k < depth; k += piece, a += piece * a_step, b += piece * b_step)
        for (int run = 0, first = 0; run < runs; run++) {
            const int end = rows * (run + 1) / runs;
            up_to(end - first, a + first, a_step, b, b_step, std::min(piece, depth - k), c + first * LANES);
            first = end;
        }
}

// C [rows][16] = A B
INLINE void set_product(int rows, const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    std::fill_n(c, rows * LANES, 0.0f);
    add_product(rows, a, a_step, b, b_step, depth, c);
}

}  // namespace
