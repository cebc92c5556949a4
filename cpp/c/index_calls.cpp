// The functions of splinefm.h for the index of a scorer file.
#include <algorithm>

#include "c/calls.hpp"

using namespace splinefm;
using namespace splinefm::c;

extern "C" {

int32_t sfm_has_index(const sfm_scorer* scorer) { return scorer->index.has_value(); }

size_t sfm_index_size(const sfm_scorer* scorer) {
    return scorer->index ? static_cast<std::size_t>(scorer->index->size()) : 0;
}

int32_t sfm_index_has_column(const sfm_scorer* scorer, size_t column) {
    return scorer->index && column < scorer->plan.columns.size() && scorer->index->is_item_column(column);
}

int32_t sfm_index_id(const sfm_scorer* scorer, size_t item, sfm_value* id) {
    if (!scorer || !id || item >= sfm_index_size(scorer)) return SFM_ERROR_ARGUMENT;
    *id = scorer->index->id(static_cast<std::int64_t>(item));
    return SFM_OK;
}

int64_t sfm_index_find(const sfm_scorer* scorer, const sfm_value* id) {
    std::int64_t found = -1;
    guarded(nullptr, [&] {
        if (scorer && id && scorer->index) found = scorer->index->find(*id);
    });
    return found;
}

size_t sfm_index_n_groups(const sfm_scorer* scorer) { return scorer->index ? scorer->index->groups().size() : 0; }

const char* sfm_index_group_name(const sfm_scorer* scorer, size_t group) {
    return group < sfm_index_n_groups(scorer) ? scorer->index->groups()[group].c_str() : nullptr;
}

int32_t sfm_index_top_k(const sfm_scorer* scorer, sfm_workspace* workspace, const sfm_value* context, size_t k,
                        const sfm_filter* filter, sfm_value* ids, float* scores, size_t* n_found, sfm_error* error) {
    return guarded(error, [&] {
        require(scorer && context && n_found, "scorer, context or n_found is NULL");
        require(scorer->index.has_value(), "the file has no index; export it with export_scorer(path, index=index)");
        require(k == 0 || (ids && scores), "ids or scores is NULL");
        const Index& index = *scorer->index;
        const Lent lent(*scorer, workspace);
        sfm_workspace& work = *lent;
        std::copy(context, context + scorer->plan.columns.size(), work.row.begin());
        read_side(scorer->plan, index, false, work);
        const auto most = static_cast<std::int64_t>(std::min(k, sfm_index_size(scorer)));
        *n_found = static_cast<std::size_t>(index.top_k(work.terms, most, filter, work.search, ids, scores));
    });
}

}  // extern "C"
