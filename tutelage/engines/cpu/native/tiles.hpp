// Products of small matrices in tiles whose sums stay in registers: C = A B, where B is stored in vectors of 16 columns, and
// A in any order. The operands are floats, or pairs of numbers in bfloat16: then A [rows][depth] and
// B [depth][columns] hold two numbers in each element, whose products are both added (see pairs.hpp).
#pragma once

#include "amx.hpp"
#include "kernel.hpp"

namespace {

constexpr int WIDE = PARTS == 1 ? 4 : 1;  // vectors of a row of a tile
template <class T>
constexpr int TALL = std::min(6, std::is_same_v<T, Pair> ? PAIR_ROWS : ROWS);  // rows of a tile of WIDE vectors
template <class T, int V>
constexpr int HEIGHT = std::is_same_v<T, float> && V < WIDE ? (V == 3 ? 8 : 12) : TALL<T>;  // of a tile of V vectors

// What an operand is made of: numbers, one or two in an element.
template <class T>
constexpr long NUMBERS = std::is_same_v<T, Pair> ? 2 : 1;
template <class T>
using NumberOf = std::conditional_t<std::is_same_v<T, Pair>, Half, float>;

// A matrix A[r][k] = x[r * row + k * step].
template <class T>
struct MatrixView {
    const T *x;
    long row, step;
};

// A matrix B[k][16 v + i] = x[k * row + v * next + i] of vectors of 16 columns. Those of a row follow each other unless
// `next` says otherwise. While one is read, what lies `ahead` elements after it is prefetched, unless that is 0.
template <class T>
struct VectorView {
    const T *x;
    long row, next = LANES, ahead = 0;

    VectorView after(long vectors) const { return {x + vectors * next, row, next, ahead}; }
};

// 16 columns of a row of B, and an element of A for all of them.
INLINE Floats columns_at(const float *b) { return in_registers(load(b)); }
INLINE Floats spread(const float *x) { return *x; }
INLINE void add_product(Floats &sum, Floats x, Floats y) { sum += x * y; }

template <int R, int V, bool PREFETCHES, class T>
INLINE void tile(MatrixView<T> a, VectorView<T> b, long depth, float *c, long c_row, bool accumulate) {
    Floats sums[R][V];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sums[r][v] = accumulate ? load(c + r * c_row + v * LANES) : Floats{};
    for (long k = 0; k < depth; k++) {
        decltype(columns_at(b.x)) columns[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) columns[v] = columns_at(b.x + v * b.next);
        if constexpr (PREFETCHES)
            for (int v = 0; v < V; v++) __builtin_prefetch(b.x + v * b.next + b.ahead, 0, 2);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const auto x = spread(a.x + r * a.row);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) add_product(sums[r][v], x, columns[v]);
        }
        a.x += a.step, b.x += b.row;
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + r * c_row + v * LANES, sums[r][v]);
}

template <int V, bool PREFETCHES, class T, int R = HEIGHT<T, V>>
INLINE void of_height(int rows, MatrixView<T> a, VectorView<T> b, long depth, float *c, long c_row, bool accumulate) {
    if (rows == R) return tile<R, V, PREFETCHES>(a, b, depth, c, c_row, accumulate);
    if constexpr (R > 1) of_height<V, PREFETCHES, T, R - 1>(rows, a, b, depth, c, c_row, accumulate);
}

// The operands are passed in registers: read from the stack they would wait for all sums of the strip before to reach the
// caches.
template <int V, bool PREFETCHES, class T>
void strip(long rows, long depth, const T *a, long a_row, long a_step, const T *b, long b_row, long b_next, float *c,
           long c_row, bool accumulate, long ahead) {
    constexpr int MOST = HEIGHT<T, V>;
    for (long r = 0; r < rows; r += MOST, a += MOST * a_row, c += MOST * c_row)
        of_height<V, PREFETCHES>(static_cast<int>(std::min<long>(MOST, rows - r)), MatrixView<T>{a, a_row, a_step},
                                 VectorView<T>{b, b_row, b_next, ahead}, depth, c, c_row, accumulate);
}

#if HAS_TILES

// Up to 16 rows of N * 16 columns of a product of pairs by tiles, of which `whole` have 16 pairs, and the last one fewer.
template <int N>
INLINE void tile_row(const Pair *a, long a_row, VectorView<Pair> b, long whole, bool rest, float *c, long c_row,
                     bool accumulate) {
    const long a_bytes = a_row * 4, b_bytes = b.row * 4, c_bytes = c_row * 4;
    if (accumulate) {
        _tile_loadd(0, c, c_bytes);
        if constexpr (N > 1) _tile_loadd(1, c + LANES, c_bytes);
        if constexpr (N > 2) _tile_loadd(2, c + 2 * LANES, c_bytes);
        if constexpr (N > 3) _tile_loadd(3, c + 3 * LANES, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
#define ADD_PRODUCTS(A, B)                                            \
    _tile_loadd(A, a, a_bytes);                                       \
    _tile_loadd(B, b.x, b_bytes);                                     \
    _tile_dpbf16ps(0, A, B);                                          \
    if constexpr (N > 1) {                                            \
        _tile_loadd(B, b.x + b.next, b_bytes);                        \
        _tile_dpbf16ps(1, A, B);                                      \
    }                                                                 \
    if constexpr (N > 2) {                                            \
        _tile_loadd(B, b.x + 2 * b.next, b_bytes);                    \
        _tile_dpbf16ps(2, A, B);                                      \
    }                                                                 \
    if constexpr (N > 3) {                                            \
        _tile_loadd(B, b.x + 3 * b.next, b_bytes);                    \
        _tile_dpbf16ps(3, A, B);                                      \
    }
    for (long k = 0; k < whole; k++, a += TILE_PAIRS, b.x += TILE_PAIRS * b.row) {
        ADD_PRODUCTS(4, 6)
    }
    if (rest) {
        ADD_PRODUCTS(5, 7)
    }
#undef ADD_PRODUCTS
    _tile_stored(0, c, c_bytes);
    if constexpr (N > 1) _tile_stored(1, c + LANES, c_bytes);
    if constexpr (N > 2) _tile_stored(2, c + 2 * LANES, c_bytes);
    if constexpr (N > 3) _tile_stored(3, c + 3 * LANES, c_bytes);
}

// `multiply` by tiles, for pairs that follow each other in the rows of A.
inline void multiply_tiles(long rows, long columns, long depth, MatrixView<Pair> a, VectorView<Pair> b, float *c,
                           long c_row, bool accumulate) {
    constexpr int MOST = 4;
    const long whole = depth / TILE_PAIRS, rest = depth % TILE_PAIRS;
    long height = 0;
    for (long row = 0; row < rows; row += TILE_ROWS, a.x += TILE_ROWS * a.row, c += TILE_ROWS * c_row) {
        if (const long now = std::min(TILE_ROWS, rows - row); now != height) {
            height = now;
            TileShapes shapes;
            for (int tile = 0; tile < MOST; tile++) shapes.set(tile, height, LANES);
            shapes.set(4, height, TILE_PAIRS), shapes.set(5, height, std::max(rest, 1L));
            shapes.set(6, TILE_PAIRS, LANES), shapes.set(7, std::max(rest, 1L), LANES);
            shapes.load(), finish_writes();
        }
        for (long column = 0; column < columns; column += MOST * LANES) {
            const long count = std::min<long>(MOST, (columns - column) / LANES);
            const auto run = count == 4 ? tile_row<4> : count == 3 ? tile_row<3> : count == 2 ? tile_row<2> : tile_row<1>;
            run(a.x, a.row, b.after(column / LANES), whole, rest > 0, c + column, c_row, accumulate);
        }
    }
    _tile_release();
}

#endif

// C [rows][columns] = A B, or += where `accumulate`. The columns are a multiple of 16. A sum begins with what comes first,
// whatever the numbers of rows and columns.
template <class T, int V = WIDE>
INLINE void multiply(long rows, long columns, long depth, MatrixView<T> a, VectorView<T> b, float *c, long c_row,
                     bool accumulate) {
#if HAS_TILES
    if constexpr (std::is_same_v<T, Pair>)
        if (a.step == 1 && uses_tiles())
            return multiply_tiles(rows, columns, depth, a, b, c, c_row, accumulate);
#endif
    const auto run = b.ahead ? strip<V, true, T> : strip<V, false, T>;
    for (; columns >= V * LANES; columns -= V * LANES, b.x += V * b.next, c += V * LANES)
        run(rows, depth, a.x, a.row, a.step, b.x, b.row, b.next, c, c_row, accumulate, b.ahead);
    if constexpr (V > 1)
        if (columns) multiply<T, V - 1>(rows, columns, depth, a, b, c, c_row, accumulate);
}

}  // namespace
