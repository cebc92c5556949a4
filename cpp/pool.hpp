// A team of threads that share the parts of a job.
//
// Threads take the next part from one atomic that holds (job, parts left). So a thread takes nothing from a job that is
// over, the caller does the parts that no other thread takes, and no call waits for a late thread. The result must not
// depend on which thread does a part: the number of parts depends on the data, never on the number of threads.
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>

namespace splinefm {

class Team {
public:
    // The caller is one of the threads; the others start with the first job. Throws std::invalid_argument below 1.
    explicit Team(int threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int threads() const { return n_threads; }

    // part(i) for i = 0 .. parts - 1, each once; returns when all are done. Denormal numbers are flushed to zero
    // inside. Parts throw nothing and start no other job. Calls from several threads run one after another.
    template <class Part> void run(int parts, Part&& part) {
        using Body = std::remove_reference_t<Part>;
        static_assert(std::is_nothrow_invocable_v<Body&, int>,
                      "a part must be noexcept: an exception would not be caught");
        run(parts, [](void* body, int i) noexcept { (*static_cast<Body*>(body))(i); }, &part);
    }

private:
    using Function = void (*)(void* body, int part) noexcept;
    struct Crew;

    void run(int parts, Function function, void* body);
    Crew& crew();

    const int n_threads;
    std::atomic<Crew*> present;
};

}  // namespace splinefm
