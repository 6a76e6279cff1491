// What all threads do together is a row of phases, and a phase is a number of parts, which threads take one by one. It
// is over when its parts are done, not when every thread has come: one that the system has put to sleep holds up only
// the part that it works on, where at a barrier it would hold up all, hundreds of times a step.
//
// Threads are those of the OpenMP runtime that torch has loaded, through the functions in `Team`, so that two pools
// never wait for processors side by side.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "given.hpp"

namespace {

constexpr int PATIENCE = 2000;  // looks at a phase before the processor is offered to others

struct alignas(64) Phase {
    std::atomic<long> next{0}, done{0};
};

inline void pause() {
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

}  // namespace
