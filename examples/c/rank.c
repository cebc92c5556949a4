/* Finds the best items of an index for a context, in C11.
 *
 *     splinefm index model.sfm ads.parquet --ids ad_id --out ads.sfi
 *     splinefm export model.sfm --to scorer --index ads.sfi --out model.sfs
 *     build/example/rank model.sfs 10 recency=3.5 country=US
 *
 * Arguments are columns of the context and their values: numbers, texts, or nothing for missing values.
 */
#include <splinefm.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* what, const sfm_error* error) {
    fprintf(stderr, "%s: %s\n", what, error->message);
    exit(1);
}

static int is_number(const sfm_scorer* scorer, int64_t column) {
    sfm_field field;
    for (size_t f = 0; f < sfm_n_fields(scorer); ++f)
        if (!sfm_describe_field(scorer, f, &field) && field.kind == SFM_NUMERICAL && field.columns[0] == column)
            return 1;
    return 0;
}

int main(int count, char** arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: rank MODEL.sfs K COLUMN=VALUE..\n");
        return 2;
    }
    sfm_error error;
    sfm_scorer* scorer;
    if (sfm_open(arguments[1], &scorer, &error)) fail(arguments[1], &error);

    /* No more than there are, so that there is memory for all. */
    size_t k = strtoul(arguments[2], NULL, 10);
    if (k > sfm_index_size(scorer)) k = sfm_index_size(scorer);

    sfm_value* context = calloc(sfm_n_columns(scorer), sizeof *context); /* columns of the items stay without value */
    sfm_value* ids = calloc(k + 1, sizeof *ids);
    float* scores = calloc(k + 1, sizeof *scores);
    if (!context || !ids || !scores) return 1;
    for (int i = 3; i < count; ++i) {
        char *end, *value = strchr(arguments[i], '=');
        if (!value) {
            fprintf(stderr, "'%s' must be COLUMN=VALUE\n", arguments[i]);
            return 2;
        }
        *value++ = '\0';
        const int64_t column = sfm_find_column(scorer, arguments[i]);
        if (column < 0 || sfm_index_has_column(scorer, (size_t)column)) {
            fprintf(stderr, "a context has no column '%s'\n", arguments[i]);
            return 2;
        }
        const double number = strtod(value, &end);
        context[column] = *value == '\0'                              ? sfm_missing()
                          : *end == '\0' && is_number(scorer, column) ? sfm_number(number)
                                                                      : sfm_text(value, strlen(value));
    }

    size_t n_found;
    if (sfm_index_top_k(scorer, NULL, context, k, NULL, ids, scores, &n_found, &error)) fail("rank", &error);
    for (size_t i = 0; i < n_found; ++i) {
        if (ids[i].kind == SFM_TEXT)
            printf("%.*s", (int)ids[i].size, ids[i].of.text);
        else
            printf("%" PRId64, ids[i].of.integer);
        printf("\t%.9g\n", (double)scores[i]);
    }
    free(context);
    free(ids);
    free(scores);
    sfm_close(scorer);
    return 0;
}
