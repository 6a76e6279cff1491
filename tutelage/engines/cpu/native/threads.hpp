// Work on all threads: a sequence of phases. A phase is a number of parts, which the threads take one by one. A phase
// ends when its parts are done, not when every thread has arrived: a thread that the system has suspended delays only
// the part that it works on, whereas at a barrier it would delay all threads, hundreds of times a step.
//
// The threads are those of the OpenMP runtime that torch has loaded, called through the functions in `ThreadPool`, so
// that two thread pools never compete for the processors.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "structs.hpp"

namespace {

constexpr int PATIENCE = 2000;  // polls of a phase before the thread yields its processor

struct alignas(64) Phase {
    std::atomic<long> next{0}, done{0};
};

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// One thread, and the phase that it is in.
struct Worker {
    Phase *phase;
    long index, threads;

    // Calls work(first, end) for `parts` ranges that divide `count` pieces.
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

// Calls work(worker) on every thread; `work` goes through up to `phases` phases.
template <class Work>
void run_phases(const ThreadPool &pool, long phases, const Work &work) {
    std::vector<Phase> row(phases);
    struct Call {
        const ThreadPool &pool;
        Phase *first;
        const Work &work;
    } call{pool, row.data(), work};
    auto enter = [](void *argument) {
        const Call &call = *static_cast<Call *>(argument);
        Worker worker{call.first, call.pool.thread(), call.pool.threads};
        call.work(worker);
    };
    if (pool.parallel && pool.threads > 1) return pool.parallel(enter, &call, static_cast<unsigned>(pool.threads), 0);
    Worker worker{row.data(), 0, 1};
    work(worker);
}

}  // namespace
