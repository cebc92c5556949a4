// The functions of splinefm.h: arguments are checked here, and nothing is thrown beyond.
#include "splinefm.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c/calls.hpp"
#include "dispatch.hpp"

using namespace splinefm;
using namespace splinefm::c;

struct sfm_items {
    sfm_items(const sfm_scorer& scorer, const std::vector<char>& of_item, std::int64_t n)
        : scorer(scorer), items(scorer.plan, of_item, n) {}

    const sfm_scorer& scorer;
    Items items;
};

namespace {

// The kernels of the machine, chosen once per process.
void choose_once() {
    static std::mutex mutex;
    static bool chosen = false;
    const std::lock_guard lock(mutex);
    if (chosen) return;
    try {
        choose_kernels();
    } catch (const std::runtime_error& problem) {
        throw Problem(SFM_ERROR_ARGUMENT, problem.what());
    }
    chosen = true;
}

template <class... Source> void open(sfm_scorer** scorer, const Source&... source) {
    choose_once();
    try {
        *scorer = new sfm_scorer(source...);
    } catch (const std::invalid_argument& problem) {  // fields or parameters that do not go together
        damaged(problem.what());
    } catch (const std::length_error&) {
        damaged("a size is out of range");
    }
}

void write_scores(const Plan& plan, const Terms& terms, sfm_workspace& work, bool predict, double* out) {
    const std::size_t n = plan.outputs.size();
    for (std::size_t c = 0; c < n; ++c) {
        const RowScorer& scorer = plan.outputs[c];
        out[c] = scorer.score(terms, work.vectors.data());
        if (predict && n == 1) out[c] = scorer.predict(out[c]);
    }
    if (predict && n > 1) to_probabilities(out, n);
}

// `each(i)` for n rows; the message of an error tells the row, if there are several.
template <class Each> void for_rows(std::size_t n, const char* what, Each&& each) {
    for (std::size_t i = 0; i < n; ++i) {
        try {
            each(i);
        } catch (const Problem& problem) {
            if (n == 1) throw;
            throw Problem(problem.code, std::string(what) + " " + std::to_string(i) + ": " + problem.what());
        }
    }
}

int score_rows(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* rows, std::size_t n, bool predict,
               double* out, sfm_error* error) {
    return guarded(error, [&] {
        require(scorer, "scorer is NULL");
        require(n == 0 || (rows && out), "rows or out is NULL");
        const Plan& plan = scorer->plan;
        const Lent lent(*scorer, workspace);
        sfm_workspace& work = *lent;
        const std::size_t n_outputs = plan.outputs.size();
        std::size_t done = 0;
        for_rows(n, "row", [&](std::size_t i) {
            const Reader reader(plan, rows + i * plan.columns.size(), work.buffer);
            read_row(reader, plan.encoder, &plan.outputs.front(), work.found.data(), work.several[i - done]);
            if (i + 1 - done < AT_ONCE && i + 1 < n) return;
            for (; done <= i; ++done)
                write_scores(plan, work.several[done % AT_ONCE], work, predict, out + done * n_outputs);
        });
    });
}

// Terms of the fields that no item has, and which fields those are.
void read_context(const Plan& plan, sfm_workspace& work) {
    const Reader reader(plan, work.row.data(), work.buffer);
    const RowEncoder& encoder = plan.encoder;
    work.context.clear();
    for (int f = 0; f < encoder.n_fields(); ++f) {
        const auto at = static_cast<std::size_t>(f);
        const std::vector<std::int64_t>& columns = plan.fields[at].columns;
        work.field_of_item[at] = std::any_of(columns.begin(), columns.end(), [&](std::int64_t column) {
            return work.of_item[static_cast<std::size_t>(column)] != 0;
        });
        work.term_ptr[at] = work.context.n_terms;
        work.unit_ptr[at] = work.context.n_units;
        if (work.field_of_item[at]) continue;
        const bool named = std::holds_alternative<CategoryField>(encoder.field(f)) ||
                           std::holds_alternative<CrossField>(encoder.field(f));
        read_field(reader, encoder, f, named ? look_up(reader, encoder, f, nullptr) : 0, work.context);
    }
    work.term_ptr.back() = work.context.n_terms;
    work.unit_ptr.back() = work.context.n_units;
}

// Terms of the context's fields and of an item's, in the order of the fields.
void read_item(const Plan& plan, sfm_workspace& work) {
    const Reader reader(plan, work.row.data(), work.buffer);
    const RowEncoder& encoder = plan.encoder;
    for (const int f : encoder.categories())
        if (work.field_of_item[static_cast<std::size_t>(f)])
            work.found[static_cast<std::size_t>(f)] = look_up(reader, encoder, f, &plan.outputs.front());
    work.terms.clear();
    for (int f = 0; f < encoder.n_fields(); ++f) {
        const auto at = static_cast<std::size_t>(f);
        if (work.field_of_item[at]) {
            read_field(reader, encoder, f, work.found[at], work.terms);
            continue;
        }
        work.terms.append(work.context, work.term_ptr[at], work.term_ptr[at + 1], work.unit_ptr[at],
                          work.unit_ptr[at + 1]);
    }
    read_offset(reader, encoder, work.terms);
}

// The context of a call: its terms are in the workspace, the result is its score without an item.
double read_catalog_context(const sfm_items& items, const sfm_value* context, sfm_workspace& work) {
    const Plan& plan = items.scorer.plan;
    std::copy(context, context + plan.columns.size(), work.row.begin());
    read_side(plan, items.items, false, work);
    return plan.outputs.front().score(work.terms, work.vectors.data());
}

void check_item_columns(const Plan& plan, const std::int64_t* columns, std::size_t n, std::vector<char>& of_item) {
    std::fill(of_item.begin(), of_item.end(), 0);
    for (std::size_t i = 0; i < n; ++i) {
        require(columns[i] >= 0 && columns[i] < static_cast<std::int64_t>(plan.columns.size()),
                "item_columns has a number that is none of a column");
        char& own = of_item[static_cast<std::size_t>(columns[i])];
        require(!own, "item_columns names a column twice");
        own = 1;
    }
}

}  // namespace

extern "C" {

int32_t sfm_abi_version(void) { return SFM_ABI_VERSION; }

const char* sfm_instruction_set(void) { return has_kernels() ? kernels().isa : nullptr; }

int32_t sfm_open(const char* path, sfm_scorer** scorer, sfm_error* error) {
    return guarded(error, [&] {
        require(path && scorer, "path or scorer is NULL");
        *scorer = nullptr;
        open(scorer, path);
    });
}

int32_t sfm_open_memory(const void* bytes, size_t size, sfm_scorer** scorer, sfm_error* error) {
    return guarded(error, [&] {
        require(bytes && scorer, "bytes or scorer is NULL");
        *scorer = nullptr;
        require(reinterpret_cast<std::uintptr_t>(bytes) % 64 == 0, "bytes must begin at a multiple of 64");
        open(scorer, std::span(static_cast<const std::byte*>(bytes), size));
    });
}

void sfm_close(sfm_scorer* scorer) { delete scorer; }

int32_t sfm_workspace_new(const sfm_scorer* scorer, sfm_workspace** workspace, sfm_error* error) {
    return guarded(error, [&] {
        require(scorer && workspace, "scorer or workspace is NULL");
        *workspace = nullptr;
        *workspace = new sfm_workspace(scorer->plan);
    });
}

void sfm_workspace_free(sfm_workspace* workspace) { delete workspace; }

size_t sfm_n_columns(const sfm_scorer* scorer) { return scorer->plan.columns.size(); }

const char* sfm_column_name(const sfm_scorer* scorer, size_t column) {
    const std::vector<std::string>& columns = scorer->plan.columns;
    return column < columns.size() ? columns[column].c_str() : nullptr;
}

int64_t sfm_find_column(const sfm_scorer* scorer, const char* name) {
    const std::vector<std::string>& columns = scorer->plan.columns;
    const auto found = name ? std::find(columns.begin(), columns.end(), name) : columns.end();
    return found == columns.end() ? -1 : found - columns.begin();
}

int64_t sfm_offset_column(const sfm_scorer* scorer, int32_t* is_exposure) {
    const Plan& plan = scorer->plan;
    if (is_exposure) *is_exposure = plan.encoder.offset().kind == ScoreOffset::logarithm;
    return plan.encoder.has_offset() ? plan.values.back().column : -1;
}

size_t sfm_n_fields(const sfm_scorer* scorer) { return scorer->plan.fields.size(); }

int32_t sfm_describe_field(const sfm_scorer* scorer, size_t field, sfm_field* described) {
    if (!scorer || !described || field >= scorer->plan.fields.size()) return SFM_ERROR_ARGUMENT;
    static constexpr const char* PARTS[] = {nullptr, "trend", "hour", "weekday", "yearday"};
    const Plan& plan = scorer->plan;
    const FieldInfo& info = plan.fields[field];
    const auto v = static_cast<std::size_t>(plan.encoder.first_value(static_cast<int>(field)));
    bool missing = true;
    for (std::size_t i = 0; i < info.columns.size(); ++i) missing &= plan.values[v + i].missing;
    *described = {.name = info.name.c_str(),
                  .columns = info.columns.data(),
                  .n_columns = info.columns.size(),
                  .kind = info.kind,
                  .missing = missing,
                  .part = info.kind == SFM_NUMERICAL ? PARTS[static_cast<int>(plan.values[v].part)] : nullptr};
    return SFM_OK;
}

size_t sfm_n_outputs(const sfm_scorer* scorer) { return scorer->plan.outputs.size(); }
size_t sfm_n_classes(const sfm_scorer* scorer) { return scorer->plan.classes.size(); }

const char* sfm_class_name(const sfm_scorer* scorer, size_t output) {
    const std::vector<std::string>& classes = scorer->plan.classes;
    return output < classes.size() ? classes[output].c_str() : nullptr;
}

const char* sfm_link(const sfm_scorer* scorer) { return scorer->plan.link.c_str(); }
const char* sfm_model(const sfm_scorer* scorer) { return scorer->plan.model.c_str(); }
const char* sfm_written_by(const sfm_scorer* scorer) { return scorer->plan.written_by.c_str(); }

int32_t sfm_score(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* rows, size_t n, double* out,
                  sfm_error* error) {
    return score_rows(scorer, workspace, rows, n, false, out, error);
}

int32_t sfm_predict(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* rows, size_t n, double* out,
                    sfm_error* error) {
    return score_rows(scorer, workspace, rows, n, true, out, error);
}

int32_t sfm_score_items(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* context,
                        const int64_t* item_columns, size_t n_item_columns, const sfm_value* items, size_t n,
                        double* out, sfm_error* error) {
    return guarded(error, [&] {
        require(scorer && context, "scorer or context is NULL");
        require(n_item_columns == 0 || item_columns, "item_columns is NULL");
        require(n == 0 || (out && (items || n_item_columns == 0)), "items or out is NULL");
        const Plan& plan = scorer->plan;
        const Lent lent(*scorer, workspace);
        sfm_workspace& work = *lent;
        check_item_columns(plan, item_columns, n_item_columns, work.of_item);
        std::copy(context, context + plan.columns.size(), work.row.begin());
        read_context(plan, work);
        for_rows(n, "item", [&](std::size_t i) {
            for (std::size_t c = 0; c < n_item_columns; ++c)
                work.row[static_cast<std::size_t>(item_columns[c])] = items[i * n_item_columns + c];
            read_item(plan, work);
            write_scores(plan, work.terms, work, false, out + i * plan.outputs.size());
        });
    });
}

int32_t sfm_items_new(const sfm_scorer* scorer, const int64_t* item_columns, size_t n_item_columns,
                      const sfm_value* values, size_t n, sfm_items** items, sfm_error* error) {
    return guarded(error, [&] {
        require(scorer && items, "scorer or items is NULL");
        *items = nullptr;
        require(n_item_columns > 0 && item_columns, "items must have a column");
        require((n == 0 || values) && n <= std::numeric_limits<std::int32_t>::max(), "values is NULL, or n too large");
        const Plan& plan = scorer->plan;
        require(!plan.encoder.has_offset(), "a catalog cannot have an offset; use sfm_score_items");
        sfm_workspace work(plan);
        check_item_columns(plan, item_columns, n_item_columns, work.of_item);
        auto made = std::make_unique<sfm_items>(*scorer, work.of_item, static_cast<std::int64_t>(n));
        for_rows(n, "item", [&](std::size_t i) {
            for (std::size_t c = 0; c < n_item_columns; ++c)
                work.row[static_cast<std::size_t>(item_columns[c])] = values[i * n_item_columns + c];
            read_side(plan, made->items, true, work);
            const double score = plan.outputs.front().score(work.terms, work.vectors.data());
            made->items.set(static_cast<std::int64_t>(i), work.terms, score, work.search);
        });
        *items = made.release();
    });
}

void sfm_items_free(sfm_items* items) { delete items; }

size_t sfm_n_items(const sfm_items* items) { return static_cast<std::size_t>(items->items.size()); }

int32_t sfm_items_score(const sfm_items* items, sfm_workspace* workspace, const sfm_value* context, float* out,
                        sfm_error* error) {
    return guarded(error, [&] {
        require(items && context && (out || items->items.size() == 0), "items, context or out is NULL");
        const Lent lent(items->scorer, workspace);
        const double constant = read_catalog_context(*items, context, *lent);
        items->items.score((*lent).terms, constant, (*lent).search, out);
    });
}

int32_t sfm_items_top_k(const sfm_items* items, sfm_workspace* workspace, const sfm_value* context, size_t k,
                        int64_t* found, float* scores, size_t* n_found, sfm_error* error) {
    return guarded(error, [&] {
        require(items && context && n_found, "items, context or n_found is NULL");
        require(k == 0 || (found && scores), "found or scores is NULL");
        const Lent lent(items->scorer, workspace);
        const double constant = read_catalog_context(*items, context, *lent);
        const auto most = static_cast<std::int64_t>(std::min(k, sfm_n_items(items)));
        *n_found =
            static_cast<std::size_t>(items->items.top_k((*lent).terms, constant, most, (*lent).search, found, scores));
    });
}

}  // extern "C"
