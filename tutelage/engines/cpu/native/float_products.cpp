// C = A B in float32 for matrices of any sizes. A sum begins with the first term and ends with the last, whatever the
// number of rows: so a row of C has the same bits whichever rows are beside it, and those of a decoding step (kernel.hpp).
//
// B is copied into vectors of 16 columns, and A, unless its rows are contiguous, into groups of rows. Both are copied in
// chunks that stay in the caches; the sums of a chunk are added to those of the chunk before it.
#include "threads.hpp"
#include "tiles.hpp"

namespace {

constexpr long RUN = TALL<float>;         // rows of a tile
constexpr long TALL_RUN = HEIGHT<float, 1>, NARROW = 2 * LANES;  // the same for products of so many columns
constexpr long CHUNK = 1 << 19;           // floats of a copy
constexpr long DEPTH = 384;               // terms of a chunk: a block of its columns stays in the second cache
constexpr long TOGETHER = 32;             // terms of B that are copied at once: those of more columns share cache lines
constexpr long ROW_BLOCK = 16 * RUN, COLUMN_BLOCK = 192, FEWEST_COLUMNS = WIDE * LANES;
constexpr long GROUP = ROW_BLOCK, SPAN = 64, TERMS_AHEAD = 16;  // rows and terms of A that are copied at once
static_assert(GROUP % TALL_RUN == 0, "a tile is in one group");

// A product, and the chunks in which its operands are copied.
struct Chunks {
    const FloatProduct &whole;
    MatrixView<float> a, b;  // b[k][j] = x[k * row + j * step]
    bool copies_a;
    long run;                   // rows of a tile
    long depth, columns, rows;  // of a chunk

    explicit Chunks(const FloatProduct &whole)
        : whole(whole),
          a{whole.a, whole.a_row, whole.a_step},
          b{whole.b, whole.b_row, whole.b_step},
          copies_a(whole.a_step != 1),
          run(whole.columns <= NARROW ? TALL_RUN : RUN),
          depth(std::min<long>(DEPTH, whole.depth)),
          columns(most(whole.columns, FEWEST_COLUMNS)),
          rows(copies_a ? most(whole.rows, GROUP) : whole.rows) {}

    long most(long count, long multiple) const {
        return std::min(round_up(count, multiple), std::max(1L, CHUNK / depth / multiple) * multiple);
    }
    long floats_of_a() const { return copies_a ? rows * depth : 0; }
    long floats_of_b() const { return columns * depth; }
    long phases() const {
        const long of_rows = pieces(whole.rows, rows) * (copies_a ? 2 : 1);
        return pieces(whole.depth, depth) * pieces(whole.columns, columns) * (1 + of_rows);
    }
};

// Copies B [depth][columns] into vectors [columns / 16][depth][16], with zeros after the last column.
void copy_columns(Worker &worker, MatrixView<float> b, long depth, long columns, float *into) {
    const long panels = blocks_of(columns);
    if (b.step == 1) {
        worker.share(pieces(depth, TOGETHER), 8 * worker.threads, [&](long first, long end) {
            for (long start = first * TOGETHER; start < std::min(depth, end * TOGETHER); start += TOGETHER)
                for (long p = 0; p < panels; p++) {
                    const long count = std::min(LANES, columns - p * LANES);
                    for (long k = start; k < std::min(depth, start + TOGETHER); k++)
                        store(into + (p * depth + k) * LANES, load_some(b.x + k * b.row + p * LANES, count));
                }
        });
        return;
    }
    worker.share(panels, 8 * worker.threads, [&](long first, long end) {
        for (long p = first; p < end; p++) {
            const long count = std::min(LANES, columns - p * LANES);
            const float *from = b.x + p * LANES * b.step;
            float *to = into + p * depth * LANES;
            long k = 0;
            if (count == LANES && b.row == 1)
                for (; k + 8 <= depth; k += 8)
                    for (long i = 0; i < LANES; i += 8) transpose(from + i * b.step + k, b.step, to + k * LANES + i, LANES);
            for (; k < depth; k++)
                for (long i = 0; i < LANES; i++) to[k * LANES + i] = i < count ? from[k * b.row + i * b.step] : 0.0f;
        }
    });
}

// Copies A [rows][depth], whose columns are contiguous, into groups of rows [rows / GROUP][depth][GROUP], with zeros
// after the last row.
void copy_rows(Worker &worker, MatrixView<float> a, long rows, long depth, float *into) {
    const long spans = pieces(depth, SPAN);
    worker.share(pieces(rows, GROUP) * spans, 8 * worker.threads, [&](long first, long end) {
        for (long part = first; part < end; part++) {
            const long row = part / spans * GROUP, start = part % spans * SPAN, count = std::min(GROUP, rows - row);
            const long whole = count / LANES * LANES, stop = std::min(depth, start + SPAN);
            const float *from = a.x + row + start * a.step;
            float *to = into + row * depth + start * GROUP;
            for (long k = start; k < stop; k++, from += a.step, to += GROUP) {
                for (long i = 0; i < whole; i += LANES) {
                    __builtin_prefetch(from + TERMS_AHEAD * a.step + i);
                    store(to + i, load(from + i));
                }
                if (whole < count) store(to + whole, load_some(from + whole, count - whole));
            }
        }
    });
}

// Adds `depth` terms to the sums of up to TALL_RUN rows of some columns, whose vectors are `next` floats apart.
INLINE void add_terms(long rows, long columns, long depth, MatrixView<float> a, const float *b, long next, float *c,
                      long c_row, bool begun) {
    const VectorView<float> vectors{b, LANES, next};
    const long whole = columns / LANES * LANES, rest = columns - whole;
    multiply(rows, whole, depth, a, vectors, c, c_row, begun);
    if (!rest) return;
    alignas(64) float last[TALL_RUN * LANES] = {};
    for (long r = 0; begun && r < rows; r++) std::copy_n(c + r * c_row + whole, rest, last + r * LANES);
    multiply(rows, LANES, depth, a, vectors.after(whole / LANES), last, LANES, begun);
    for (long r = 0; r < rows; r++) std::copy_n(last + r * LANES, rest, c + r * c_row + whole);
}

// A chunk of a product: its first row, column and term, and how many of each.
struct Chunk {
    const Chunks &chunks;
    long row, column, term, rows, columns, depth;

    Chunk(const Chunks &chunks, long row, long column, long term)
        : chunks(chunks),
          row(row),
          column(column),
          term(term),
          rows(std::min<long>(chunks.rows, chunks.whole.rows - row)),
          columns(std::min<long>(chunks.columns, chunks.whole.columns - column)),
          depth(std::min<long>(chunks.depth, chunks.whole.depth - term)) {}

    MatrixView<float> a() const {
        return {chunks.a.x + row * chunks.a.row + term * chunks.a.step, chunks.a.row, chunks.a.step};
    }
    MatrixView<float> b() const {
        return {chunks.b.x + term * chunks.b.row + column * chunks.b.step, chunks.b.row, chunks.b.step};
    }

    // Adds the terms of the chunk to the sums, and the bias after the last one. `copied_a` are groups, `copied_b` vectors.
    void add(Worker &worker, const float *copied_a, const float *copied_b) const {
        const long row_blocks = pieces(rows, ROW_BLOCK);
        const bool few = row_blocks * pieces(columns, COLUMN_BLOCK) < 8 * worker.threads;
        const long width = few ? FEWEST_COLUMNS : COLUMN_BLOCK, parts = row_blocks * pieces(columns, width);
        worker.share(parts, parts, [&](long first, long end) {
            for (long part = first; part < end; part++)
                add_block(part % row_blocks * ROW_BLOCK, part / row_blocks * width, width, copied_a, copied_b);
        });
    }

    void add_block(long top, long left, long width, const float *copied_a, const float *copied_b) const {
        const FloatProduct &whole = chunks.whole;
        const long height = std::min(ROW_BLOCK, rows - top), some = std::min(width, columns - left);
        float *c = whole.c + (row + top) * whole.c_row + column + left;
        const long run = chunks.run;
        for (long r = 0; r < height; r += run) {
            MatrixView<float> from{a().x + (top + r) * whole.a_row, whole.a_row, 1};
            if (chunks.copies_a) from = {copied_a + top * depth + r, 1, GROUP};
            for (long next = r + run; next < std::min(height, r + 2 * run); next++)  // sums of the next tiles
                for (long i = 0; i < some; i += LANES) __builtin_prefetch(c + next * whole.c_row + i, 1);
            add_terms(std::min(run, height - r), some, depth, from, copied_b + left * depth, depth * LANES,
                      c + r * whole.c_row, whole.c_row, whole.accumulate || term > 0);
        }
        if (!whole.bias || term + depth < whole.depth) return;
        for (long r = 0; r < height; r++)
            for (long i = 0; i < some; i++) c[r * whole.c_row + i] += whole.bias[column + left + i];
    }
};

}  // namespace

extern "C" {

// Floats of the workspace of a product.
int64_t tutelage_float_product_workspace(const FloatProduct *product) {
    const Chunks chunks(*product);
    return chunks.floats_of_b() + chunks.floats_of_a();
}

// Computes C, or adds to it. The depth is at least 1.
void tutelage_float_product(const ThreadPool *pool, const FloatProduct *product, float *workspace) {
    const Chunks chunks(*product);
    float *of_b = workspace, *of_a = of_b + chunks.floats_of_b();
    run_phases(*pool, chunks.phases(), [&](Worker &worker) {
        for (long term = 0; term < product->depth; term += chunks.depth)
            for (long column = 0; column < product->columns; column += chunks.columns) {
                const Chunk of_columns(chunks, 0, column, term);
                copy_columns(worker, of_columns.b(), of_columns.depth, of_columns.columns, of_b);
                for (long row = 0; row < product->rows; row += chunks.rows) {
                    const Chunk chunk(chunks, row, column, term);
                    if (chunks.copies_a) copy_rows(worker, chunk.a(), chunk.rows, chunk.depth, of_a);
                    chunk.add(worker, of_a, of_b);
                }
            }
    });
}
}
