// Vectors of 16 floats in as many registers as this processor needs for them.
//
// A register is a vector of GCC's and Clang's extensions. The 16 floats are several registers explicitly, since GCC
// keeps vectors that are wider than a register in memory: sums of products then run at a tenth of the speed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

#define INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define NOT_INLINED [[maybe_unused]] __attribute__((noinline))
#else
#define NOT_INLINED [[maybe_unused]] __attribute__((noipa))
#endif

#if defined(__AVX512F__)
constexpr int BYTES = 64, REGISTERS = 32;  // of a register, and how many there are
#elif defined(__AVX__)
constexpr int BYTES = 32, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int BYTES = 16, REGISTERS = 32;
#else
constexpr int BYTES = 16, REGISTERS = 16;
#endif

constexpr long LANES = 16;
constexpr int EACH = BYTES / 4, PARTS = LANES / EACH;  // floats of a register, and registers of a vector

typedef float Register __attribute__((vector_size(BYTES)));
typedef int32_t Whole __attribute__((vector_size(BYTES)));
typedef float UnalignedRegister __attribute__((vector_size(BYTES), aligned(4), may_alias));

// N registers as halves of halves, not as an array, which GCC keeps in memory until it has unrolled the loops over it.
template <int N>
struct Registers {
    Registers<N / 2> low, high;

    Registers() = default;
    INLINE Registers(float x) : low(x), high(x) {}
    INLINE Registers(Registers<N / 2> low, Registers<N / 2> high) : low(low), high(high) {}
};

template <>
struct Registers<1> {
    Register x;

    Registers() = default;
    INLINE Registers(float x) : x(x - Register{}) {}
    INLINE Registers(Register x) : x(x) {}
};

typedef Registers<PARTS> Floats;

// Applies work(x) to each register, or work(a, b) to each pair of registers.
template <class Work>
INLINE Registers<1> each(Registers<1> x, const Work &work) {
    return work(x.x);
}
template <int N, class Work>
INLINE Registers<N> each(Registers<N> x, const Work &work) {
    return {each(x.low, work), each(x.high, work)};
}
template <class Work>
INLINE Registers<1> each(Registers<1> a, Registers<1> b, const Work &work) {
    return work(a.x, b.x);
}
template <int N, class Work>
INLINE Registers<N> each(Registers<N> a, Registers<N> b, const Work &work) {
    return {each(a.low, b.low, work), each(a.high, b.high, work)};
}

template <int N = PARTS>
INLINE Registers<N> load(const float *from) {
    if constexpr (N == 1)
        return Register(*reinterpret_cast<const UnalignedRegister *>(from));
    else
        return {load<N / 2>(from), load<N / 2>(from + N / 2 * EACH)};
}

template <int N>
INLINE void store(float *to, Registers<N> x) {
    if constexpr (N == 1) {
        *reinterpret_cast<UnalignedRegister *>(to) = x.x;
    } else {
        store(to, x.low);
        store(to + N / 2 * EACH, x.high);
    }
}

// x, forced into registers: otherwise GCC reads it from memory for each of its uses, and waits for that.
INLINE Floats in_registers(Floats x) {
    return each(x, [](Register part) {
#if defined(__x86_64__)
        asm("" : "+v"(part));
#elif defined(__aarch64__)
        asm("" : "+w"(part));
#endif
        return part;
    });
}

// Loads `count` of 16 numbers, and zeros for the others.
INLINE Floats load_some(const float *from, long count) {
    if (count == LANES) return load(from);
    alignas(64) float all[LANES] = {};
    std::copy_n(from, count, all);
    return load(all);
}

// Stores the first `count` of 16 numbers.
INLINE void put(float *to, long count, Floats x) {
    if (count == LANES) return store(to, x);
    alignas(64) float all[LANES];
    store(all, x);
    std::copy_n(all, count, to);
}

INLINE Floats operator+(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x + y; });
}
INLINE Floats operator-(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x - y; });
}
INLINE Floats operator*(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x * y; });
}
INLINE Floats operator/(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x / y; });
}
INLINE Floats operator-(Floats x) { return -1.0f * x; }
INLINE Floats &operator+=(Floats &a, Floats b) { return a = a + b; }

// The maximum lane by lane; b where one of the two is not a number.
INLINE Floats larger(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x > y ? x : y; });
}

// The first `count` numbers of x, and the others of `rest`.
template <int N>
INLINE Registers<N> first_of(Registers<N> x, int count, Registers<N> rest) {
    if constexpr (N == 1) {
        Whole lane;
        for (int i = 0; i < EACH; i++) lane[i] = i;
        return Register(lane < count ? x.x : rest.x);
    } else {
        return {first_of(x.low, count, rest.low), first_of(x.high, count - N / 2 * EACH, rest.high)};
    }
}

typedef float Four __attribute__((vector_size(16)));

// Reduces 16 numbers to four: join(join(0, 2), join(1, 3)).
template <class Join>
INLINE Four quartered(Floats x, const Join &join) {
    Four part[4];
    std::memcpy(part, &x, sizeof x);
    return join(join(part[0], part[2]), join(part[1], part[3]));
}

INLINE float sum(Floats x) {
    const Four four = quartered(x, [](Four a, Four b) { return a + b; });
    return (four[0] + four[2]) + (four[1] + four[3]);
}

INLINE float largest(Floats x) {
    const Four four = quartered(x, [](Four a, Four b) { return a > b ? a : b; });
    return std::max(std::max(four[0], four[2]), std::max(four[1], four[3]));
}

// e^x = 2^n e^r with an integer n and |r| <= ln 2 / 2; e^r is the polynomial of Cephes. 0 below -87.3, finite above
// 88.4.
INLINE Register exponential(Register x) {
    const Register none{}, least = -87.33654f - none, most = 88.37626f - none;
    const Register magic = 12582912.0f - none;  // 1.5 * 2^23 rounds
    const Whole vanishes = x < least;
    x = vanishes ? least : x;
    x = x > most ? most : x;
    const Register shifted = x * 1.44269504088896341f + magic;
    const Register whole = shifted - magic;
    const Register r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
    Register y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    const Whole power = (__builtin_convertvector(whole, Whole) + 127) << 23;
    Register scale;
    std::memcpy(&scale, &power, sizeof scale);
    return vanishes ? none : y * scale;
}

INLINE Floats exponential(Floats x) {
    return each(x, [](Register part) { return exponential(part); });
}

// The pairs (a, b) rotated by angles with these cosines and sines. A product stays by itself, so that no compiler joins
// it with the sum in one place and not in another.
struct Rotated {
    Floats first, second;

    INLINE Rotated(Floats a, Floats b, Floats cosine, Floats sine)
        : first(a * cosine - in_registers(b * sine)), second(b * cosine + in_registers(a * sine)) {}
};

INLINE Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

// Eight by eight numbers, transposed.
typedef float Eight __attribute__((vector_size(32)));
typedef float UnalignedEight __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t Places __attribute__((vector_size(32)));

INLINE void transpose(const float *from, long row, float *to, long to_row) {
#if defined(__clang__)
#define SHUFFLE(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLE(A, B, ...) __builtin_shuffle(A, B, Places{__VA_ARGS__})
#endif
    Eight x[8], y[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) x[r] = *reinterpret_cast<const UnalignedEight *>(from + r * row);
#pragma GCC unroll 3
    for (int stage = 0; stage < 3; stage++) {  // interleaves rows r and r + 4
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            y[2 * r] = SHUFFLE(x[r], x[r + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            y[2 * r + 1] = SHUFFLE(x[r], x[r + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++) x[r] = y[r];
    }
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) *reinterpret_cast<UnalignedEight *>(to + r * to_row) = x[r];
#undef SHUFFLE
}

}  // namespace
