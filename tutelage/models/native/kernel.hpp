// Vectors of 16 numbers, and the one kernel that everything is made of: rows of A, one number of each row side by side,
// times the rows of B, 16 columns wide:
//     C[r][0..15] += sum over k of A[k][r] * B[k][0..15]
// A is the input of up to 16 lines and B a panel of weights, or A are keys and B queries, or A shares and B values.
//
// With the vector extensions of GCC and Clang, for any processor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

constexpr long LANES = 16;
#if defined(__AVX512F__)
constexpr int ROWS = 16;  // sums of so many rows stay in registers
#else
constexpr int ROWS = 6;
#endif
constexpr long AHEAD = 64 * LANES;  // floats: how far before its use a part of a panel is asked for

typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(64)));

#define INLINE inline __attribute__((always_inline))

INLINE Floats load(const float *from) { return *reinterpret_cast<const Floats *>(from); }
INLINE void store(float *to, Floats x) { *reinterpret_cast<Floats *>(to) = x; }
INLINE Floats all(float x) { return x - Floats{}; }

// The first `columns` of 16 numbers.
INLINE void put(float *to, long columns, Floats y) {
    if (columns == LANES) return store(to, y);
    for (long i = 0; i < columns; i++) to[i] = y[i];
}

INLINE long upward(long x, long multiple) { return (x + multiple - 1) / multiple * multiple; }
INLINE long blocks_of(long lines) { return (lines + LANES - 1) / LANES; }

INLINE float sum(Floats x) {
    typedef float Half __attribute__((vector_size(32)));
    typedef float Quarter __attribute__((vector_size(16)));
    Half halves[2];
    std::memcpy(halves, &x, sizeof x);
    const Half half = halves[0] + halves[1];
    Quarter quarters[2];
    std::memcpy(quarters, &half, sizeof half);
    const Quarter quarter = quarters[0] + quarters[1];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

INLINE float largest(Floats x) {
    float most = x[0];
    for (long i = 1; i < LANES; i++) most = std::max(most, x[i]);
    return most;
}

// Lane by lane the largest of `most` and `count` numbers.
INLINE Floats larger(const float *x, long count, Floats most) {
    long i = 0;
    for (; i + LANES <= count; i += LANES) most = load(x + i) > most ? load(x + i) : most;
    for (; i < count; i++) most = all(x[i]) > most ? all(x[i]) : most;
    return most;
}

// e^x = 2^n e^r with n whole and |r| <= ln 2 / 2, e^r as Cephes' polynomial. 0 below -87.3, finite above 88.4.
INLINE Floats exponential(Floats x) {
    const Floats least = all(-87.33654f), most = all(88.37626f), magic = all(12582912.0f);  // 1.5 * 2^23 rounds
    const Ints vanishes = x < least;
    x = vanishes ? least : x;
    x = x > most ? most : x;
    const Floats shifted = x * 1.44269504088896341f + magic;
    const Floats whole = shifted - magic;
    const Floats r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
    Floats y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    const Ints power = (__builtin_convertvector(whole, Ints) + 127) << 23;
    Floats scale;
    std::memcpy(&scale, &power, sizeof scale);
    return vanishes ? Floats{} : y * scale;
}

INLINE Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

template <int R>
INLINE void some_rows(const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    Floats sums[R];
    for (int r = 0; r < R; r++) sums[r] = load(c + r * LANES);
    for (long k = 0; k < depth; k++) {
        __builtin_prefetch(b + AHEAD, 0, 2);
        const Floats column = load(b);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) sums[r] += a[r] * column;
        a += a_step, b += b_step;
    }
    for (int r = 0; r < R; r++) store(c + r * LANES, sums[r]);
}

template <int R = ROWS>
INLINE void up_to(int rows, const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    if (rows == R) return some_rows<R>(a, a_step, b, b_step, depth, c);
    if constexpr (R > 1) up_to<R - 1>(rows, a, a_step, b, b_step, depth, c);
}

// C [rows][16] += A B for up to 16 rows.
void add_product(int rows, const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    for (int first = 0; first < rows; first += ROWS)
        up_to(std::min(ROWS, rows - first), a + first, a_step, b, b_step, depth, c + first * LANES);
}

// C [rows][16] = A B
INLINE void set_product(int rows, const float *a, long a_step, const float *b, long b_step, long depth, float *c) {
    std::fill_n(c, rows * LANES, 0.0f);
    add_product(rows, a, a_step, b, b_step, depth, c);
}

}  // namespace
