// What the functions of splinefm.h share: their objects, and how errors become results.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c/image.hpp"
#include "c/index.hpp"
#include "c/items.hpp"
#include "c/plan.hpp"
#include "c/reader.hpp"
#include "scorer/read_row.hpp"
#include "splinefm.h"

// Rows of a list that are encoded, then scored: parameters that were asked for arrive in the meantime.
inline constexpr std::size_t AT_ONCE = 8;

// The memory of one call.
struct sfm_workspace {
    explicit sfm_workspace(const splinefm::c::Plan& plan)
        : found(plan.fields.size()), terms(plan.encoder.max_terms()), several(AT_ONCE, terms),
          context(plan.encoder.max_terms()),
          vectors(static_cast<std::size_t>(plan.outputs.front().workspace_size(plan.encoder.max_terms()))),
          row(plan.columns.size()), of_item(plan.columns.size()), field_of_item(plan.fields.size()),
          term_ptr(plan.fields.size() + 1), unit_ptr(plan.fields.size() + 1) {
        buffer.reserve(256);
    }

    std::vector<std::int64_t> found;
    splinefm::Terms terms;
    std::vector<splinefm::Terms> several;  // rows of a list
    splinefm::Terms context;
    std::vector<float> vectors;
    std::string buffer;
    std::vector<sfm_value> row;                // a context with an item
    std::vector<char> of_item, field_of_item;  // columns that items have, and fields that read one of them
    splinefm::c::Search search;
    std::vector<std::int64_t> term_ptr, unit_ptr;  // where the terms and units of a field of the context begin
};

struct sfm_scorer {
    explicit sfm_scorer(const char* path) : mapping(std::in_place, path), image(mapping->bytes()), plan(image) {
        open_index();
    }
    explicit sfm_scorer(std::span<const std::byte> bytes) : image(bytes), plan(image) { open_index(); }

    void open_index() {
        if (splinefm::c::Index::is_in(image)) index.emplace(image, plan);
    }

    std::optional<splinefm::c::Mapping> mapping;
    splinefm::c::Image image;
    splinefm::c::Plan plan;
    std::optional<splinefm::c::Index> index;

    // Workspaces that no call is using.
    mutable std::mutex mutex;
    mutable std::vector<std::unique_ptr<sfm_workspace>> spare;
    mutable std::size_t n_lent_at_most = 0;
};

namespace splinefm::c {

inline int report(sfm_error* error, int code, const char* message) {
    if (error) {
        error->code = code;
        std::size_t n = std::min(std::strlen(message), sizeof error->message - 1);
        // Not in the middle of a character.
        while (n && (static_cast<unsigned char>(message[n]) & 0xc0) == 0x80) --n;
        std::memcpy(error->message, message, n);
        error->message[n] = '\0';
    }
    return code;
}

// Runs a call; what it throws becomes its result.
template <class Call> int guarded(sfm_error* error, Call&& call) noexcept {
    try {
        call();
        if (error) {
            error->code = SFM_OK;
            error->message[0] = '\0';
        }
        return SFM_OK;
    } catch (const Problem& problem) {
        return report(error, problem.code, problem.what());
    } catch (const std::bad_alloc&) {
        return report(error, SFM_ERROR_MEMORY, "out of memory");
    } catch (const std::exception& problem) {
        return report(error, SFM_ERROR_INTERNAL, problem.what());
    } catch (...) {
        return report(error, SFM_ERROR_INTERNAL, "unknown error");
    }
}

inline void require(bool holds, const char* message) {
    if (!holds) throw Problem(SFM_ERROR_ARGUMENT, message);
}

// The workspace of the caller, or one that the scorer lends.
class Lent {
public:
    Lent(const sfm_scorer& scorer, sfm_workspace* given) : scorer(scorer), workspace(given) {
        if (workspace) return;
        {
            const std::lock_guard lock(scorer.mutex);
            if (!scorer.spare.empty()) {
                own = std::move(scorer.spare.back());
                scorer.spare.pop_back();
            }
        }
        if (!own) {
            own = std::make_unique<sfm_workspace>(scorer.plan);
            const std::lock_guard lock(scorer.mutex);
            scorer.spare.reserve(++scorer.n_lent_at_most);  // so that giving it back allocates nothing
        }
        workspace = own.get();
    }
    ~Lent() {
        if (!own) return;
        const std::lock_guard lock(scorer.mutex);
        scorer.spare.push_back(std::move(own));
    }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

    sfm_workspace& operator*() const { return *workspace; }

private:
    const sfm_scorer& scorer;
    std::unique_ptr<sfm_workspace> own;
    sfm_workspace* workspace;
};

// Terms of the fields of one side of a catalog.
template <class Catalog> void read_side(const Plan& plan, const Catalog& items, bool of_item, sfm_workspace& work) {
    const Reader reader(plan, work.row.data(), work.buffer);
    const RowEncoder& encoder = plan.encoder;
    for (const int f : encoder.categories())
        if (items.is_of_item(static_cast<std::size_t>(f)) == of_item)
            work.found[static_cast<std::size_t>(f)] = look_up(reader, encoder, f, &plan.outputs.front());
    work.terms.clear();
    for (int f = 0; f < encoder.n_fields(); ++f)
        if (items.is_of_item(static_cast<std::size_t>(f)) == of_item)
            read_field(reader, encoder, f, work.found[static_cast<std::size_t>(f)], work.terms);
}

}  // namespace splinefm::c
