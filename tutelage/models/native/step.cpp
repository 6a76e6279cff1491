// One token of every line through all layers of a model, in float32. The equations are in __init__.py.
//
// Everything is one kernel: rows of A, one number of each row side by side, times the rows of B, 16 columns wide:
//     C[r][0..15] += sum over k of A[k][r] * B[k][0..15]
// A is the input of up to 16 lines and B a panel of weights, or A are keys and B queries, or A shares and B values.
//
// C++17 with the vector extensions of GCC and Clang, no libraries. Threads are those of the OpenMP runtime that torch
// has loaded, through the functions in `Team`, so that two pools never wait for processors side by side.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr long LANES = 16;
#if defined(__AVX512F__)
constexpr int ROWS = 16;  // sums of so many rows stay in registers
#else
constexpr int ROWS = 6;
#endif
constexpr int PATIENCE = 2000;  // looks at a phase before the processor is offered to others
constexpr long SOON = 8;      // tokens: how far before their use the keys of an answer are asked for
constexpr long AHEAD = 64 * LANES;  // floats: how far before its use a part of a panel is asked for

typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(64)));

#define INLINE inline __attribute__((always_inline))

INLINE Floats load(const float *from) { return *reinterpret_cast<const Floats *>(from); }
INLINE void store(float *to, Floats x) { *reinterpret_cast<Floats *>(to) = x; }
INLINE Floats all(float x) { return x - Floats{}; }

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

// The kernel ----------------------------------------------------------------------------------------------------------

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

// What Python fills in ------------------------------------------------------------------------------------------------

struct Team {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);  // GOMP_parallel, or null: one thread
    int (*thread)();
    int64_t threads;
};

// W as panels [ceil(out / 16)][in][16], and b or null.
struct Matrix {
    const float *panels, *bias;
    int64_t out, in;
};

struct Layer {
    Matrix heads, mixed, gate_and_up, down;  // [q | k | v], o, panels of gate and up by turns, down
    const float *norm, *query_norm, *key_norm, *gate_norm;
    float epsilon, query_epsilon, key_epsilon, gate_epsilon, scale;
    const float *prompt_keys, *prompt_values;
    float *keys, *values;
};

struct Model {
    const Layer *layers;
    int64_t count, hidden, heads, keys, width, inner;
    const float *norm;
    float epsilon;
};

// Where the answers are: lines first[p] to first[p + 1] answer prompt p, in slots of its own.
struct Lines {
    int64_t count, prompts, longest, written;
    const int64_t *first, *lengths, *slots;
    int64_t prompt_keys[3], prompt_values[3], answers[4];  // strides: [P, K, w]; [P, K, Q]; [P, K, G, room]
};

// Where what layers compute is kept: of each layer and group of lines a block with room for `places` tokens, kind by
// kind. A line's tokens lie one behind the other from `first` on.
struct Kept {
    float *const *blocks;  // [layers][groups]
    int64_t groups;
    const int64_t *places;         // [groups]
    const int64_t *group, *first;  // [n]
};

namespace {

INLINE long upward(long x, long multiple) { return (x + multiple - 1) / multiple * multiple; }
INLINE long blocks_of(long lines) { return (lines + LANES - 1) / LANES; }

// Threads -------------------------------------------------------------------------------------------------------------
// What all threads do together is a row of phases, and a phase is a number of parts, which threads take one by one. It
// is over when its parts are done, not when every thread has come: one that the system has put to sleep holds up only
// the part that it works on, where at a barrier it would hold up all, hundreds of times a step.

struct alignas(64) Phase {
    std::atomic<long> next{0}, done{0};
};

INLINE void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// One thread on its way through the phases.
struct Worker {
    Phase *phase;
    long index, threads;

    // work(first, behind) for `parts` runs of `count` pieces
    template <class Work>
    void share(long count, long parts, const Work &work) {
        parts = std::min(count, parts);
        for (long part; (part = phase->next.fetch_add(1, std::memory_order_relaxed)) < parts;) {
            work(count * part / parts, count * (part + 1) / parts);
            phase->done.fetch_add(1, std::memory_order_release);
        }
        for (int turns = 0; phase->done.load(std::memory_order_acquire) < parts; turns++)
            turns < PATIENCE ? pause() : std::this_thread::yield();
        phase++;
    }
};

template <class Work>
void together(const Team &team, long phases, const Work &work) {
    std::vector<Phase> row(phases);
    struct Call {
        const Team &team;
        Phase *first;
        const Work &work;
    } call{team, row.data(), work};
    auto enter = [](void *given) {
        const Call &call = *static_cast<Call *>(given);
        Worker me{call.first, call.team.thread(), call.team.threads};
        call.work(me);
    };
    if (team.parallel && team.threads > 1) return team.parallel(enter, &call, static_cast<unsigned>(team.threads), 0);
    Worker me{row.data(), 0, 1};
    work(me);
}

// Products ------------------------------------------------------------------------------------------------------------
// The input of a product lies in blocks of 16 lines, [blocks][in][16]: one feature of 16 lines side by side.

INLINE float *spot(float *blocks, long features, long line) {
    return blocks + line / LANES * features * LANES + line % LANES;
}

INLINE float root_mean_square(const float *x, long size, float epsilon) {
    Floats squares{};
    long i = 0;
    for (; i + LANES <= size; i += LANES) squares += load(x + i) * load(x + i);
    float rest = 0;
    for (; i < size; i++) rest += x[i] * x[i];
    return 1.0f / std::sqrt((sum(squares) + rest) / size + epsilon);
}

// What a product reads, in blocks: `x` as blocks already, or lines [n][in], with their norm where it has a weight. Each
// thread brings lines into blocks of its own once it has a part to do: two that write to one block would wait for each
// other's caches.
struct Input {
    const float *x;
    bool is_blocks;
    const float *norm;
    float epsilon;

    const float *blocks(long lines, long features, float *own) const {
        if (is_blocks) return x;
        for (long line = 0; line < lines; line += LANES)
            block(x + line * features, std::min(LANES, lines - line), features, own + line * features);
        return own;
    }

    void block(const float *rows, long count, long features, float *into) const {
        float scales[LANES];
        for (long r = 0; r < count; r++)
            scales[r] = norm ? root_mean_square(rows + r * features, features, epsilon) : 1.0f;
        for (long first = 0; first < features; first += LANES) {  // 16 by 16: no more lines of a cache than it holds
            const long columns = std::min(LANES, features - first);
            for (long r = 0; r < count; r++) {
                alignas(64) float part[LANES];
                const float *from = rows + r * features + first;
                for (long i = 0; i < columns; i++) part[i] = norm ? from[i] * scales[r] * norm[first + i] : from[i];
                for (long i = 0; i < columns; i++) into[(first + i) * LANES + r] = part[i];
            }
        }
    }
};

// Parts of about eight panels, as many for each thread.
INLINE long parts_of(long panels, long threads) { return threads * std::max(4L, blocks_of(panels / threads) * 2); }

struct Bias {
    alignas(64) float part[LANES] = {};

    Bias(const float *bias, long column, long columns) {
        if (bias) std::copy_n(bias + column, columns, part);
    }
    Floats operator()() const { return load(part); }
};

// Calls done(line, column, columns, y [16]) for each part of y = x W^T + b.
template <class Done>
void product(Worker &me, long lines, const Input &input, const Matrix &by, float *own, const Done &done) {
    const long panels = blocks_of(by.out);
    const float *x = nullptr;
    me.share(panels, parts_of(panels, me.threads), [&](long first, long behind) {
        if (!x) x = input.blocks(lines, by.in, own);
        alignas(64) float tile[LANES * LANES];
        for (long panel = first; panel < behind; panel++) {
            const long column = panel * LANES, columns = std::min(LANES, by.out - column);
            const Bias bias(by.bias, column, columns);
            for (long line = 0; line < lines; line += LANES) {
                const long rows = std::min(LANES, lines - line);
                set_product(rows, x + line * by.in, LANES, by.panels + column * by.in, LANES, by.in, tile);
                for (long r = 0; r < rows; r++) done(line + r, column, columns, load(tile + r * LANES) + bias());
            }
        }
    });
}

INLINE void put(float *to, long columns, Floats y) {
    if (columns == LANES) return store(to, y);
    for (long i = 0; i < columns; i++) to[i] = y[i];
}

// One kind of what one layer computes, `width` numbers of each line; `before` of the kinds before it. Where nothing is
// kept, there are no blocks.
struct Record {
    const Kept *kept;
    float *const *blocks;
    long token, before, width;

    explicit operator bool() const { return blocks; }
    float *of(long line) const {
        const long group = kept->group[line];
        return blocks[group] + before * kept->places[group] + width * (kept->first[line] + token);
    }
    void put(long line, long column, long columns, Floats y) const {
        if (blocks) ::put(of(line) + column, columns, y);
    }
    void put(long line, const float *all) const {
        if (blocks) std::copy_n(all, width, of(line));
    }
};

// The kinds of one layer, in the order in which a block has them.
struct Records {
    Record query, key, value, attended, ends, h, gate, up, y;

    Records(const Model &model, const Kept *kept, long layer, long token) {
        const long mixed = model.heads * model.width, keys = model.keys * model.width;
        Record *const kinds[] = {&query, &key, &value, &attended, &ends, &h, &gate, &up, &y};
        const long inner = model.inner, d = model.hidden;
        const long widths[] = {mixed, keys, keys, mixed, model.heads, d, inner, inner, d};
        long before = 0;
        for (int kind = 0; kind < 9; kind++) {
            float *const *blocks = kept ? kept->blocks + layer * kept->groups : nullptr;
            *kinds[kind] = {kept, blocks, token, before, widths[kind]};
            before += widths[kind];
        }
    }
};

// x += y W^T + b, for lines x [n][out]
void onto(Worker &me, long lines, const Input &input, const Matrix &by, float *own, float *x, const Record &record) {
    product(me, lines, input, by, own, [&](long line, long column, long columns, Floats y) {
        float *to = x + line * by.out + column;
        alignas(64) float before[LANES] = {};
        std::copy_n(to, columns, before);
        y += load(before);
        put(to, columns, y), record.put(line, column, columns, y);
    });
}

// silu(g) * u into blocks. Panels of g and u lie by turns.
void gated(Worker &me, long lines, const Input &input, const Matrix &by, float *own, float *into,
           const Records &records) {
    const long inner = by.out / 2, panels = blocks_of(inner), deep = by.in * LANES;
    const float *x = nullptr;
    me.share(panels, parts_of(2 * panels, me.threads), [&](long first, long behind) {
        if (!x) x = input.blocks(lines, by.in, own);
        alignas(64) float gates[LANES * LANES], ups[LANES * LANES];
        for (long panel = first; panel < behind; panel++) {
            const long column = panel * LANES, columns = std::min(LANES, inner - column);
            const float *weights = by.panels + 2 * panel * deep;
            const Bias gate_bias(by.bias, column, columns), up_bias(by.bias, inner + column, columns);
            for (long line = 0; line < lines; line += LANES) {
                const long rows = std::min(LANES, lines - line);
                set_product(rows, x + line * by.in, LANES, weights, LANES, by.in, gates);
                set_product(rows, x + line * by.in, LANES, weights + deep, LANES, by.in, ups);
                for (long r = 0; r < rows; r++) {
                    const Floats gate = load(gates + r * LANES) + gate_bias();
                    const Floats up = load(ups + r * LANES) + up_bias(), y = silu(gate) * up;
                    float *to = spot(into, inner, line + r) + column * LANES;
                    for (long i = 0; i < columns; i++) to[i * LANES] = y[i];
                    records.gate.put(line + r, column, columns, gate);
                    records.up.put(line + r, column, columns, up);
                }
            }
        }
    });
}

// Attention -----------------------------------------------------------------------------------------------------------

struct Angles {
    const float *cosine, *sine;  // [n][w]
};

// Norms of heads where there are some, and the turn of queries and keys [H + K][w] of one line.
void turn(const Model &model, const Layer &layer, const float *cosine, const float *sine, float *heads) {
    const long width = model.width, half = width / 2;
    for (long head = 0; head < model.heads + model.keys; head++) {
        float *x = heads + head * width;
        const bool query = head < model.heads;
        if (const float *weight = query ? layer.query_norm : layer.key_norm) {
            const float r = root_mean_square(x, width, query ? layer.query_epsilon : layer.key_epsilon);
            for (long i = 0; i < width; i++) x[i] *= r * weight[i];
        }
        for (long i = 0; i < half; i++) {
            const float first = x[i], second = x[half + i];
            x[i] = first * cosine[i] - second * sine[i];
            x[half + i] = second * cosine[half + i] + first * sine[half + i];
        }
    }
}

// Queries and keys turned, keys and values where they are kept.
void turned(Worker &me, const Model &model, const Layer &layer, const Lines &lines, const Angles &angles,
            float *heads, const Records &records) {
    const long width = model.width, row = (model.heads + 2 * model.keys) * width;
    const int64_t *step = lines.answers;
    me.share(lines.count, 2 * me.threads, [&](long first, long behind) {
        long prompt = 0;
        for (long line = first; line < behind; line++) {
            while (lines.first[prompt + 1] <= line) prompt++;
            float *x = heads + line * row;
            turn(model, layer, angles.cosine + line * width, angles.sine + line * width, x);
            const float *key = x + model.heads * width, *value = key + model.keys * width;
            records.query.put(line, x), records.key.put(line, key), records.value.put(line, value);
            const long slot = prompt * step[0] + lines.slots[line] * step[2] + (lines.written - 1) * step[3];
            for (long k = 0; k < model.keys; k++) {
                std::copy_n(key + k * width, width, layer.keys + slot + k * step[1]);
                std::copy_n(value + k * width, width, layer.values + slot + k * step[1]);
            }
        }
    });
}

INLINE float dot(const float *x, const float *y, long size) {
    Floats products{};
    long i = 0;
    for (; i + LANES <= size; i += LANES) products += load(x + i) * load(y + i);
    float rest = 0;
    for (; i < size; i++) rest += x[i] * y[i];
    return sum(products) + rest;
}

// The softmax down each of 16 columns of scores [length][16], all but its last division; the sums, and the largest.
struct Sums {
    Floats sums, most;
};

Sums softmax(float *scores, long length) {
    Floats most = load(scores), sums{};
    for (long i = 1; i < length; i++) {
        const Floats x = load(scores + i * LANES);
        most = x > most ? x : most;
    }
    for (long i = 0; i < length; i++) {
        const Floats share = exponential(load(scores + i * LANES) - most);
        store(scores + i * LANES, share), sums += share;
    }
    return {sums, most};
}

// Floats that one thread needs: queries [w][16], scores [Q + T][16], values [max(Q, T)][16].
INLINE long attention_room(const Model &model, const Lines &lines) {
    return (model.width + 2 * (lines.longest + lines.written)) * LANES;
}

// The heads that share keys, of the lines that share a prompt, in blocks of 16 queries: `block` of one prompt and key.
struct Block {
    const Model &model;
    const Layer &layer;
    const Lines &lines;
    const Records &records;
    long prompt, key, start, queries;  // from query `start` of those that the key has, answer by answer
    float *room;

    long shared() const { return model.heads / model.keys; }
    long line(long query) const { return lines.first[prompt] + (start + query) / shared(); }
    long head(long query) const { return key * shared() + (start + query) % shared(); }
    long behind(long query) const {  // the query behind the last of the same line
        return std::min(queries, query + shared() - (start + query) % shared());
    }
    long answer(long query) const {
        const int64_t *step = lines.answers;
        return prompt * step[0] + key * step[1] + lines.slots[line(query)] * step[2];
    }

    // heads [n][H + 2K][w] → [n][H w]
    void attend(const float *heads, float *into) const {
        const long length = lines.lengths[prompt];
        float *turned = room, *scores = turned + model.width * LANES;
        const Sums found = score(heads, turned, scores, length);
        alignas(64) float inverse[LANES];
        store(inverse, 1.0f / found.sums);
        for (long q = 0; q < queries && records.ends; q++)
            records.ends.of(line(q))[head(q)] = found.most[q] + std::log(found.sums[q]);
        float *spare = scores + (length + lines.written) * LANES;
        for (long column = 0; column < model.width; column += LANES)
            mix(scores, length, inverse, column, spare, into);
    }

    Sums score(const float *heads, float *turned, float *scores, long length) const {
        const long width = model.width, row = (model.heads + 2 * model.keys) * width;
        std::fill_n(turned, width * LANES, 0.0f);
        for (long q = 0; q < queries; q++) {
            const float *query = heads + line(q) * row + head(q) * width;
            for (long i = 0; i < width; i++) turned[i * LANES + q] = query[i] * layer.scale;
        }
        const int64_t *step = lines.prompt_keys;
        const float *keys = layer.prompt_keys + prompt * step[0] + key * step[1];
        for (long i = 0; i < length; i += LANES) {
            ask_for(keys + i, i);
            set_product(std::min(LANES, length - i), keys + i, step[2], turned, LANES, width, scores + i * LANES);
        }
        float *own = scores + length * LANES;
        std::fill_n(own, lines.written * LANES, 0.0f);
        for (long q = 0; q < queries; q = behind(q)) {
            const float *past = layer.keys + answer(q), *values = layer.values + answer(q);
            const float *next = behind(q) < queries ? layer.keys + answer(behind(q)) : past;
            for (long t = 0; t < lines.written; t++) {
                const long later = t + SOON < lines.written ? t + SOON : t + SOON - lines.written;
                ask_for_row((t + SOON < lines.written ? past : next) + later * lines.answers[3]);
                ask_for_row(values + t * lines.answers[3]);
                for (long lane = q; lane < behind(q); lane++)
                    own[t * LANES + lane] = layer.scale * dot(heads + line(q) * row + head(lane) * width,
                                                              past + t * lines.answers[3], width);
            }
        }
        return softmax(scores, length + lines.written);
    }

    // The keys of the blocks to come and the values beside these: both lie in lines too far apart to be foreseen.
    void ask_for(const float *keys, long position) const {
        const int64_t *step = lines.prompt_values;
        const float *values = layer.prompt_values + prompt * step[0] + key * step[1] + position * step[2];
        for (long i = 0; i < model.width; i++) __builtin_prefetch(keys + 2 * LANES + i * lines.prompt_keys[2], 0, 2);
        for (long row = 0; row < LANES; row++) ask_for_row(values + row * step[2]);
    }

    void ask_for_row(const float *row) const {
        for (long i = 0; i < model.width; i += LANES) __builtin_prefetch(row + i, 0, 2);
    }

    void mix(const float *shares, long length, const float *inverse, long column, float *spare, float *into) const {
        const long columns = std::min(LANES, model.width - column);
        const int64_t *step = lines.prompt_values;
        alignas(64) float tile[LANES * LANES];
        long row = step[2];
        const float *values = layer.prompt_values + prompt * step[0] + key * step[1] + column;
        if (columns < LANES) values = padded(values, row, length, columns, spare);
        set_product(queries, shares, LANES, values, row, length, tile);
        for (long q = 0; q < queries; q = behind(q)) {
            row = lines.answers[3], values = layer.values + answer(q) + column;
            if (columns < LANES) values = padded(values, row, lines.written, columns, spare);
            add_product(behind(q) - q, shares + length * LANES + q, LANES, values, row, lines.written,
                        tile + q * LANES);
        }
        for (long q = 0; q < queries; q++) {
            const long at = head(q) * model.width + column;
            const Floats y = load(tile + q * LANES) * inverse[q];
            put(into + line(q) * model.heads * model.width + at, columns, y);
            records.attended.put(line(q), at, columns, y);
        }
    }

    // Rows of fewer than 16 numbers, since reading 16 might read beyond what there is.
    static const float *padded(const float *from, long &row, long length, long columns, float *into) {
        for (long i = 0; i < length; i++) {
            std::fill_n(into + i * LANES, LANES, 0.0f);
            std::copy_n(from + i * row, columns, into + i * LANES);
        }
        row = LANES;
        return into;
    }
};

void attention(Worker &me, const Model &model, const Layer &layer, const Lines &lines, const Records &records,
               const float *heads, float *into, float *room) {
    const long shared = model.heads / model.keys, pairs = lines.prompts * model.keys;
    const long each = pairs < 2 * me.threads ? 2 * me.threads : 1;  // parts to a prompt and key: else one cache reads it
    me.share(pairs * each, pairs * each, [&](long part, long) {
        const long pair = part / each, prompt = pair / model.keys, key = pair % model.keys;
        const long queries = (lines.first[prompt + 1] - lines.first[prompt]) * shared, blocks = blocks_of(queries);
        const long first = blocks * (part % each) / each, last = blocks * (part % each + 1) / each;
        for (long block = first; block < last; block++) {
            const long start = queries * block / blocks, behind = queries * (block + 1) / blocks;
            Block{model, layer, lines, records, prompt, key, start, behind - start, room}.attend(heads, into);
        }
    });
}

// A step --------------------------------------------------------------------------------------------------------------

// The memory of a step, in floats: what the threads share, and then what each has for itself.
struct Plan {
    long heads, attended, active, states, each;

    Plan(const Model &model, const Lines &lines) {
        const long padded = upward(lines.count, LANES), mixed = model.heads * model.width;
        heads = upward(lines.count * (model.heads + 2 * model.keys) * model.width, LANES);
        attended = upward(lines.count * mixed, LANES);
        active = padded * model.inner;
        states = padded * std::max<long>(model.hidden, mixed);
        each = states + attention_room(model, lines);
    }
    long total(long threads) const { return heads + attended + active + threads * each; }
};

struct Step {
    const Model &model;
    const Lines &lines;
    const Angles angles;
    const Kept *kept;
    float *x;
    float *heads, *attended, *active;

    void layer(Worker &me, long index, float *own, float *room) const {
        const Layer &layer = model.layers[index];
        const long n = lines.count, row = (model.heads + 2 * model.keys) * model.width;
        const Records records(model, kept, index, lines.written - 1);
        product(me, n, {x, false, layer.norm, layer.epsilon}, layer.heads, own,
                [&](long line, long column, long columns, Floats y) { put(heads + line * row + column, columns, y); });
        turned(me, model, layer, lines, angles, heads, records);
        attention(me, model, layer, lines, records, heads, attended, room);
        onto(me, n, {attended, false, nullptr, 0}, layer.mixed, own, x, records.h);
        gated(me, n, {x, false, layer.gate_norm, layer.gate_epsilon}, layer.gate_and_up, own, active,
              records);
        onto(me, n, {active, true, nullptr, 0}, layer.down, own, x, records.y);
    }

    void last_norm(Worker &me) const {
        me.share(lines.count, me.threads, [&](long first, long behind) {
            for (long line = first; line < behind; line++) {
                float *state = x + line * model.hidden, r = root_mean_square(state, model.hidden, model.epsilon);
                for (long i = 0; i < model.hidden; i++) state[i] *= r * model.norm[i];
            }
        });
    }
};

constexpr long PHASES = 6;  // of a layer

}  // namespace

extern "C" {

int64_t tutelage_room(const Model *model, const Lines *lines, int64_t threads) {
    return Plan(*model, *lines).total(threads);
}

// x [n][d] becomes the last hidden states. cos, sin [n][w]. `kept` may be null. `room` as said above.
void tutelage_step(const Team *team, const Model *model, const Lines *lines, const Kept *kept, float *x,
                   const float *cosine, const float *sine, float *room) {
    const Plan plan(*model, *lines);
    float *heads = room, *attended = heads + plan.heads, *active = attended + plan.attended;
    float *rooms = active + plan.active;
    const Step step{*model, *lines, {cosine, sine}, kept, x, heads, attended, active};
    together(*team, model->count * PHASES + 1, [&](Worker &me) {
        float *own = rooms + me.index * plan.each;
        for (long index = 0; index < model->count; index++) step.layer(me, index, own, own + plan.states);
        step.last_norm(me);
    });
}

// y [n][out] = x [n][in] W^T + b, with room for [ceil(n / 16)][in][16] for each thread.
void tutelage_product(const Team *team, const Matrix *by, int64_t lines, const float *x, float *y, float *room) {
    together(*team, 1, [&](Worker &me) {
        float *own = room + me.index * upward(lines, LANES) * by->in;
        product(me, lines, {x, false, nullptr, 0}, *by, own, [&](long line, long column, long columns, Floats part) {
            put(y + line * by->out + column, columns, part);
        });
    });
}

// W [out][in] into panels, `step` floats from one to the next, zeros behind the last row.
void tutelage_pack(const Team *team, const float *weight, int64_t out, int64_t in, float *panels, int64_t step) {
    together(*team, 1, [&](Worker &me) {
        me.share(blocks_of(out), 8 * me.threads, [&](long first, long behind) {
            for (long panel = first; panel < behind; panel++) {
                float *to = panels + panel * step;
                const long rows = std::min<long>(LANES, out - panel * LANES);
                const float *from = weight + panel * LANES * in;
                for (long k = 0; k < in; k++)
                    for (long r = 0; r < LANES; r++) to[k * LANES + r] = r < rows ? from[r * in + k] : 0.0f;
            }
        });
    });
}

void tutelage_exponential(const float *x, float *y, int64_t size) {  // for the tests; size in multiples of 16
    for (long i = 0; i < size; i += LANES) store(y + i, exponential(load(x + i)));
}
}
