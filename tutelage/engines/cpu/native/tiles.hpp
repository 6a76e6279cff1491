// Products of small matrices in tiles whose sums stay in registers: C = A B, where B is stored row by row, in vectors of
// 16 columns, and A in any order. The operands are floats, or pairs of numbers in bfloat16: then A [rows][depth] and
// B [depth][columns] hold two numbers in each element, whose products are both added (see pairs.hpp).
#pragma once

#include "kernel.hpp"
#include "pairs.hpp"

namespace {

constexpr int WIDE = PARTS == 1 ? 4 : 1;  // vectors of a row of a tile
template <class T>
constexpr int TALL = std::min(6, std::is_same_v<T, Pair> ? PAIR_ROWS : ROWS);  // rows of a tile

// A matrix A[r][k] = x[r * row + k * step].
template <class T>
struct MatrixView {
    const T *x;
    long row, step;
};

// 16 columns of a row of B, and an element of A for all of them.
INLINE Floats columns_at(const float *b) { return in_registers(load(b)); }
INLINE Floats spread(const float *x) { return *x; }
INLINE void add_product(Floats &sum, Floats x, Floats y) { sum += x * y; }

template <int R, int V, class T>
INLINE void tile(MatrixView<T> a, const T *b, long b_step, long depth, float *c, long c_row, bool accumulate) {
    Floats sums[R][V];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sums[r][v] = accumulate ? load(c + r * c_row + v * LANES) : Floats{};
    for (long k = 0; k < depth; k++) {
        decltype(columns_at(b)) columns[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) columns[v] = columns_at(b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const auto x = spread(a.x + r * a.row);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) add_product(sums[r][v], x, columns[v]);
        }
        a.x += a.step, b += b_step;
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + r * c_row + v * LANES, sums[r][v]);
}

template <int V, class T, int R = TALL<T>>
INLINE void of_height(int rows, MatrixView<T> a, const T *b, long b_step, long depth, float *c, long c_row,
                      bool accumulate) {
    if (rows == R) return tile<R, V>(a, b, b_step, depth, c, c_row, accumulate);
    if constexpr (R > 1) of_height<V, T, R - 1>(rows, a, b, b_step, depth, c, c_row, accumulate);
}

template <int V, class T>
void strip(long rows, MatrixView<T> a, const T *b, long b_step, long depth, float *c, long c_row, bool accumulate) {
    for (long r = 0; r < rows; r += TALL<T>, a.x += TALL<T> * a.row, c += TALL<T> * c_row)
        of_height<V>(static_cast<int>(std::min<long>(TALL<T>, rows - r)), a, b, b_step, depth, c, c_row, accumulate);
}

// C [rows][columns] = A B, or += where `accumulate`. The columns are a multiple of 16.
template <class T, int V = WIDE>
void multiply(long rows, long columns, long depth, MatrixView<T> a, const T *b, long b_step, float *c, long c_row,
              bool accumulate) {
    for (; columns >= V * LANES; columns -= V * LANES, b += V * LANES, c += V * LANES)
        strip<V>(rows, a, b, b_step, depth, c, c_row, accumulate);
    if constexpr (V > 1)
        if (columns) multiply<T, V - 1>(rows, columns, depth, a, b, b_step, c, c_row, accumulate);
}

}  // namespace
