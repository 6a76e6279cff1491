// What layers compute, left where it is kept.
#pragma once

#include "given.hpp"
#include "kernel.hpp"

namespace {

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

}  // namespace
