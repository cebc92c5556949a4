#include "pool.hpp"

#include <pthread.h>

#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "denormals.hpp"

namespace splinefm {
namespace {

// Looks at a counter before a thread goes to sleep: a few microseconds, about what it costs to wake it.
constexpr int SPINS = 2000;

// Threads do not survive a fork: a child process that was made after a team began needs threads of its own.
std::atomic<unsigned> forks{0};
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Returns when the counter is no longer `old`.
void wait_for_change(const std::atomic<std::uint32_t>& counter, std::uint32_t old) {
    for (int i = 0; i < SPINS; ++i) {
        if (counter.load(std::memory_order_acquire) != old) return;
        pause();
    }
    counter.wait(old, std::memory_order_acquire);
}

std::uint32_t parts_left(std::uint64_t state) { return static_cast<std::uint32_t>(state); }

}  // namespace

// What threads share. A child process leaves its parent's crew as it is and makes another.
struct Team::Crew {
    std::mutex busy;
    const unsigned born = forks.load();
    std::vector<std::thread> threads;
    std::atomic<bool> stop{false};
    std::atomic<std::uint32_t> job{0}, done{0};
    std::atomic<std::uint64_t> state{0};  // job << 32 | parts left
    // Read before a part is taken, hence perhaps while the next job is being written: then nothing is taken.
    std::atomic<Function> function{nullptr};
    std::atomic<void*> body{nullptr};
    std::atomic<std::uint32_t> parts{0};

    void work() {
        const FlushDenormals flush;
        std::uint64_t now = state.load(std::memory_order_acquire);
        while (parts_left(now) > 0) {
            const Function call = function.load(std::memory_order_relaxed);
            void* const what = body.load(std::memory_order_relaxed);
            const std::uint32_t all = parts.load(std::memory_order_relaxed);
            // Only if a part of the same job is left: then what was read belongs to it.
            if (!state.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel, std::memory_order_acquire))
                continue;
            call(what, static_cast<int>(all - parts_left(now)));
            if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == all) done.notify_one();
            now = state.load(std::memory_order_acquire);
        }
    }

    void live() {
        std::uint32_t seen = 0;
        for (;;) {
            wait_for_change(job, seen);
            seen = job.load(std::memory_order_acquire);
            if (stop.load(std::memory_order_acquire)) return;
            work();
        }
    }

    void announce(std::uint32_t number) {
        job.store(number, std::memory_order_release);
        job.notify_all();
    }
};

Team::Team(int threads) : n_threads(threads), present(nullptr) {
    if (threads < 1) throw std::invalid_argument("threads must be at least 1, got " + std::to_string(threads));
}

Team::~Team() {
    Crew* const last = present.load();
    if (!last || last->born != forks.load()) return;  // threads of a parent process: nothing here to end
    last->stop.store(true, std::memory_order_release);
    last->announce(last->job.load() + 1);
    for (std::thread& thread : last->threads) thread.join();
    delete last;
}

Team::Crew& Team::crew() {
    Crew* now = present.load();
    if (now && now->born == forks.load()) return *now;
    Crew* const made = new Crew;
    if (present.compare_exchange_strong(now, made)) return *made;
    delete made;  // another caller was faster
    return *now;
}

void Team::run(int parts, Function function, void* body) {
    if (n_threads == 1 || parts <= 1) {
        const FlushDenormals flush;
        for (int i = 0; i < parts; ++i) function(body, i);
        return;
    }
    Crew& crew = this->crew();
    const std::lock_guard lock(crew.busy);
    while (static_cast<int>(crew.threads.size()) < n_threads - 1) crew.threads.emplace_back([&crew] { crew.live(); });
    const auto all = static_cast<std::uint32_t>(parts);
    const std::uint32_t number = crew.job.load(std::memory_order_relaxed) + 1;
    crew.function.store(function, std::memory_order_relaxed);
    crew.body.store(body, std::memory_order_relaxed);
    crew.parts.store(all, std::memory_order_relaxed);
    crew.done.store(0, std::memory_order_relaxed);
    crew.state.store(std::uint64_t{number} << 32 | all, std::memory_order_release);
    crew.announce(number);
    crew.work();
    for (std::uint32_t done; (done = crew.done.load(std::memory_order_acquire)) != all;)
        wait_for_change(crew.done, done);
}

}  // namespace splinefm
