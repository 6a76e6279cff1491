// The tiles of AMX in software, for processors that have none: `-include` of this header makes native/amx.hpp take them.
//
// Shapes, order of sums and rounding are those of TDPBF16PS in Intel's manual (Software Developer's Manual, volume 2):
// for a row m and a column n, the even and the odd numbers of 32 features are summed by themselves, by fused multiplication
// and addition, both sums are added, and that is added to C. The processor takes numbers below 2^-126 for zero; here they count.
// What the processor refuses ends the process.
#pragma once

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Not a part of each kernel, which the compiler would take twice the time for.
#define APART [[gnu::noinline]] inline

namespace software_tiles {

struct Tile {
    int rows = 0, bytes = 0;
    alignas(64) unsigned char row[16][64] = {};

    void clear() { std::memset(row, 0, sizeof row); }
};

inline thread_local Tile tiles[8];
inline thread_local bool configured = false;

inline void expect(bool holds, const char *what) {
    if (holds) return;
    std::fprintf(stderr, "software_tiles.hpp: %s\n", what);
    std::abort();
}

inline void load_shapes(const void *given) {
    const auto *shapes = static_cast<const unsigned char *>(given);
    expect(shapes[0] == 1 && shapes[1] == 0, "palette 1 and row 0 are expected");
    for (int i = 2; i < 16; i++) expect(shapes[i] == 0, "reserved bytes must be zero");
    for (int tile = 0; tile < 16; tile++) {
        uint16_t bytes;
        std::memcpy(&bytes, shapes + 16 + 2 * tile, sizeof bytes);
        const int rows = shapes[48 + tile];
        expect(bytes <= 64 && rows <= 16 && !bytes == !rows, "a tile has up to 16 rows of up to 64 bytes");
        expect(tile < 8 || !rows, "there are eight tiles");
        if (tile < 8) tiles[tile].rows = rows, tiles[tile].bytes = bytes, tiles[tile].clear();
    }
    configured = true;
}

inline Tile &at(int tile) {
    expect(configured && tiles[tile].rows, "the tile has no shape");
    return tiles[tile];
}

APART void load(int tile, const void *from, long step) {
    Tile &to = at(tile);
    to.clear();
    for (int r = 0; r < to.rows; r++) std::memcpy(to.row[r], static_cast<const char *>(from) + r * step, to.bytes);
}

APART void store(int tile, void *to, long step) {
    const Tile &from = at(tile);
    for (int r = 0; r < from.rows; r++) std::memcpy(static_cast<char *>(to) + r * step, from.row[r], from.bytes);
}

inline void zero(int tile) { at(tile).clear(); }

inline void release() {
    for (Tile &tile : tiles) tile = {};
    configured = false;
}

// A number in bfloat16 as float.
inline float widened(const unsigned char *x) {
    uint16_t half;
    std::memcpy(&half, x, sizeof half);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

APART void add_product(int to, int first, int second) {
    expect(to != first && to != second && first != second, "three different tiles are expected");
    Tile &c = at(to), &a = at(first), &b = at(second);
    expect(a.bytes % 4 == 0 && b.bytes % 4 == 0 && c.bytes % 4 == 0, "rows of whole pairs are expected");
    expect(c.rows == a.rows && c.bytes == b.bytes && a.bytes / 4 == b.rows, "the shapes of a product do not fit");
    float columns[2][16][16] = {};
    for (int k = 0; k < b.rows; k++)
        for (int n = 0; n < b.bytes / 4; n++)
            for (int odd = 0; odd < 2; odd++) columns[odd][k][n] = widened(b.row[k] + 4 * n + 2 * odd);
    for (int m = 0; m < c.rows; m++) {
        float even[16] = {}, odd[16] = {}, sums[16];
        for (int k = 0; k < b.rows; k++) {
            const float x = widened(a.row[m] + 4 * k), y = widened(a.row[m] + 4 * k + 2);
            for (int n = 0; n < 16; n++) even[n] = std::fma(x, columns[0][k][n], even[n]);
            for (int n = 0; n < 16; n++) odd[n] = std::fma(y, columns[1][k][n], odd[n]);
        }
        std::memcpy(sums, c.row[m], sizeof sums);
        for (int n = 0; n < c.bytes / 4; n++) sums[n] += even[n] + odd[n];
        std::memcpy(c.row[m], sums, sizeof sums);
    }
}

// The one system call of the kernels asks for the use of tiles.
inline long allow(long, long, long) { return 0; }

}  // namespace software_tiles

#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_release
#undef _tile_dpbf16ps
#define _tile_loadconfig software_tiles::load_shapes
#define _tile_loadd software_tiles::load
#define _tile_stored software_tiles::store
#define _tile_zero software_tiles::zero
#define _tile_release software_tiles::release
#define _tile_dpbf16ps software_tiles::add_product
#define syscall software_tiles::allow
