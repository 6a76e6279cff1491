// The matrix product of a decoding step with weights in bfloat16 (see kernel.hpp): pairs of features k, k + 1 at a time,
//     C[r][0..15] += A[k][r] * B[k][0..15] + A[k + 1][r] * B[k + 1][0..15]
// with sums in float32, which begin with the first features, in one order for any number of lines. B is stored in pairs,
// [in / 2][16][2], with zeros up to a multiple of 32 features. A block of 16 lines of A is stored as
//     tiles [in / 32][16][32], with zeros after the last feature, where the processor has tiles (see amx.hpp);
//     pairs [in / 2][16][2] where it multiplies pairs;
//     floats [in][16] elsewhere, where B is widened.
// In all forms A is rounded to bfloat16.
#pragma once

#include "amx.hpp"
#include "kernel.hpp"
#include "structs.hpp"

namespace {

// Floats from one block of 16 lines to the next. A workspace has room for [features of a line padded to 16][16].
INLINE long block_step(const Matrix &by) {
    const long features = by.in + by.beyond;
    return by.half && uses_tiles() ? padded_features(features) * TILE_ROWS / 2 : round_up(features, LANES) * LANES;
}

// Stores 16 features of line r of a block, from `first` on, a multiple of 16. Those after the last of `in` are zeros.
INLINE void put_features(float *block, long r, long first, long in, const Half *x) {
    if (uses_tiles()) {
        Half *to = reinterpret_cast<Half *>(block) + (first / TILE_FEATURES * TILE_ROWS + r) * TILE_FEATURES;
        std::memcpy(to + first % TILE_FEATURES, x, LANES * sizeof(Half));
        if (first + LANES >= in && first % TILE_FEATURES == 0) std::fill_n(to + LANES, LANES, Half{});
        return;
    }
    alignas(64) Pair pairs[LANES / 2];
    std::memcpy(pairs, x, sizeof pairs);
    for (long i = 0; i < std::min(LANES, in - first) / 2; i++) {
        if constexpr (MULTIPLIES_PAIRS) {
            std::memcpy(block + (first / 2 + i) * LANES + r, pairs + i, sizeof(Pair));
        } else {
            const Pair two[2] = {pairs[i] << 16, pairs[i] & 0xffff0000u};
            for (int odd = 0; odd < 2; odd++)
                std::memcpy(block + (first + 2 * i + odd) * LANES + r, two + odd, sizeof(Pair));
        }
    }
}

// Stores `count` features of line r of a block, from `first` on, a multiple of 16, rounded.
INLINE void put_rounded_features(float *block, long r, long first, long count, long in, const float *x) {
    alignas(64) float part[LANES] = {};
    std::copy_n(x, count, part);
    alignas(64) Half halves[LANES];
    store(halves, load(part));
    put_features(block, r, first, in, halves);
}

// The same for the first `count` lines of a block, `step` numbers apart. Memory of 16 lines is read.
INLINE void put_features_of_lines(float *block, long count, long first, long in, const Half *x, long step) {
#if defined(__AVX512BF16__)
    constexpr long FEW = 4;  // lines that are stored faster one by one
    if (!uses_tiles() && count > FEW) return store_columns(x, step, reinterpret_cast<Pair *>(block) + first / 2 * LANES);
#endif
    for (long r = 0; r < count; r++) put_features(block, r, first, in, x + r * step);
}

// C [R][16] = or += A B.
#if defined(__AVX512BF16__)

template <int R>
INLINE void some_half_rows(const float *a, const Pair *b, long pairs, float *c, bool accumulate) {
    Floats sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sums[r] = accumulate ? load(c + r * LANES) : Floats{};
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
INLINE void some_half_rows(const float *a, const Pair *b, long pairs, float *c, bool accumulate) {
    Floats sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sums[r] = accumulate ? load(c + r * LANES) : Floats{};
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
INLINE void up_to_half(int rows, const float *a, const Pair *b, long pairs, float *c, bool accumulate) {
    if (rows == R) return some_half_rows<R>(a, b, pairs, c, accumulate);
    if constexpr (R > 1) up_to_half<R - 1>(rows, a, b, pairs, c, accumulate);
}

// C [rows][16] = A B for up to 16 rows, in runs of about equal size, piece by piece (see `add_product`). Not by tiles.
void set_half_product(int rows, const float *a, const Pair *b, long pairs, float *c) {
    const long of_pair = MULTIPLIES_PAIRS ? LANES : 2 * LANES;
    const int runs = (rows + PAIR_ROWS - 1) / PAIR_ROWS;
    const long piece = runs > 1 ? PIECE : pairs;
    for (long k = 0; k < pairs; k += piece, a += piece * of_pair, b += piece * LANES)
        for (int run = 0, first = 0; run < runs; run++) {
            const int end = rows * (run + 1) / runs;
            up_to_half(end - first, a + first, b, std::min(piece, pairs - k), c + first * LANES, k > 0);
            first = end;
        }
}

constexpr long TILED_LINES = 256;  // lines whose blocks stay in the second cache
constexpr long TILED_STEPS = 16;   // tiles of a panel that stay in the first cache
constexpr long TILED_ROW = 2 * LANES;  // floats of a row of C

#if HAS_TILES

// C [32][32] = or += A B for one or two blocks of lines and one or two panels, `steps` tiles of each.
template <bool SECOND_BLOCK, bool SECOND_PANEL>
INLINE void tile_product(const Half *a, long block, const Pair *b, long panel, long steps, float *c, bool accumulate) {
    constexpr long ROW = TILED_ROW * sizeof(float), BYTES_OF_TILE_ROW = 64;
    float *below = c + TILE_ROWS * TILED_ROW;
    if (accumulate) {
        _tile_loadd(0, c, ROW);
        if constexpr (SECOND_PANEL) _tile_loadd(1, c + LANES, ROW);
        if constexpr (SECOND_BLOCK) _tile_loadd(2, below, ROW);
        if constexpr (SECOND_BLOCK && SECOND_PANEL) _tile_loadd(3, below + LANES, ROW);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (long k = 0; k < steps; k++, a += TILE_ROWS * TILE_FEATURES, b += TILE_PAIRS * LANES) {
        if constexpr (!SECOND_BLOCK)  // few lines: weights come from memory
            for (long i = 0; i < TILE_PAIRS * LANES; i += LANES) {
                __builtin_prefetch(b + 2 * AHEAD + i, 0, 2);
                if constexpr (SECOND_PANEL) __builtin_prefetch(b + panel + 2 * AHEAD + i, 0, 2);
            }
        _tile_loadd(4, a, BYTES_OF_TILE_ROW);
        _tile_loadd(6, b, BYTES_OF_TILE_ROW);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (SECOND_PANEL) {
            _tile_loadd(7, b + panel, BYTES_OF_TILE_ROW);
            _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (SECOND_BLOCK) {
            _tile_loadd(5, a + block, BYTES_OF_TILE_ROW);
            _tile_dpbf16ps(2, 5, 6);
        }
        if constexpr (SECOND_BLOCK && SECOND_PANEL) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, ROW);
    if constexpr (SECOND_PANEL) _tile_stored(1, c + LANES, ROW);
    if constexpr (SECOND_BLOCK) _tile_stored(2, below, ROW);
    if constexpr (SECOND_BLOCK && SECOND_PANEL) _tile_stored(3, below + LANES, ROW);
}

// C [lines, padded to blocks][32] = A B for up to 256 lines in blocks and `count` consecutive panels of `by`, one or two.
inline void set_tile_products(const Matrix &by, long lines, const float *blocks, long first, long count, float *c) {
    const Half *a = reinterpret_cast<const Half *>(blocks);
    const Pair *b = reinterpret_cast<const Pair *>(by.panel(first));
    const long steps = padded_features(by.in) / TILE_FEATURES;
    const long block = 2 * block_step(by), panel = steps * TILE_PAIRS * LANES;
    TileShapes shapes;
    for (int tile = 0; tile < 8; tile++) shapes.set(tile, TILE_ROWS, TILE_PAIRS);
    shapes.load(), finish_writes();
    for (long k = 0; k < steps; k += TILED_STEPS) {
        const long some = std::min(TILED_STEPS, steps - k);
        const Pair *columns = b + k * TILE_PAIRS * LANES;
        for (long line = 0; line < lines; line += 2 * TILE_ROWS) {
            const Half *rows = a + line / TILE_ROWS * block + k * TILE_ROWS * TILE_FEATURES;
            float *to = c + line * TILED_ROW;
            const bool second = lines - line > TILE_ROWS;
            if (second && count == 2) tile_product<true, true>(rows, block, columns, panel, some, to, k > 0);
            else if (second) tile_product<true, false>(rows, block, columns, panel, some, to, k > 0);
            else if (count == 2) tile_product<false, true>(rows, block, columns, panel, some, to, k > 0);
            else tile_product<false, false>(rows, block, columns, panel, some, to, k > 0);
        }
    }
    _tile_release();
}

#else

inline void set_tile_products(const Matrix &, long, const float *, long, long, float *) {}

#endif

}  // namespace
