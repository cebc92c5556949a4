/* Scores rows of raw values with a scorer file, in C11.
 *
 *     splinefm demo --out demo                                        # or any model of yours
 *     splinefm export model.sfm --to scorer --out model.sfs
 *     cmake -S examples/c -B build/example -DCMAKE_PREFIX_PATH=/where/splinefm/is/installed
 *     cmake --build build/example
 *     build/example/score model.sfs recency=3.5 country=US interests=
 *
 * Every argument is a column and its value: a number, a text, or nothing for a missing value.
 */
#include <splinefm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* what, const sfm_error* error) {
    fprintf(stderr, "%s: %s\n", what, error->message);
    exit(1);
}

/* Numbers for numerical columns, texts for others. */
static sfm_value read_value(const char* text, int is_number) {
    char* end;
    if (*text == '\0') return sfm_missing();
    const double number = strtod(text, &end);
    return is_number && *end == '\0' ? sfm_number(number) : sfm_text(text, strlen(text));
}

int main(int count, char** arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: score MODEL.sfs COLUMN=VALUE..\n");
        return 2;
    }
    sfm_error error;
    sfm_scorer* scorer;
    if (sfm_open(arguments[1], &scorer, &error)) fail(arguments[1], &error);

    /* Which columns hold numbers, and what the fields are. */
    const size_t n_columns = sfm_n_columns(scorer);
    int* is_number = calloc(n_columns, sizeof *is_number);
    sfm_value* row = calloc(n_columns, sizeof *row); /* all zero: no value yet */
    double* out = calloc(sfm_n_outputs(scorer), sizeof *out);
    if (!is_number || !row || !out) return 1;
    for (size_t f = 0; f < sfm_n_fields(scorer); ++f) {
        sfm_field field;
        sfm_describe_field(scorer, f, &field);
        if (field.kind == SFM_NUMERICAL) is_number[field.columns[0]] = 1;
    }

    for (int i = 2; i < count; ++i) {
        char* value = strchr(arguments[i], '=');
        if (!value) {
            fprintf(stderr, "'%s' must be COLUMN=VALUE\n", arguments[i]);
            return 2;
        }
        *value++ = '\0';
        const int64_t column = sfm_find_column(scorer, arguments[i]);
        if (column < 0) {
            fprintf(stderr, "the model has no column '%s'; it has", arguments[i]);
            for (size_t c = 0; c < n_columns; ++c) fprintf(stderr, " '%s'", sfm_column_name(scorer, c));
            fprintf(stderr, "\n");
            return 2;
        }
        row[column] = read_value(value, is_number[column]);
    }

    /* A column without a value is an error that names it. */
    if (sfm_score(scorer, NULL, row, 1, out, &error)) fail("score", &error);
    for (size_t c = 0; c < sfm_n_outputs(scorer); ++c) printf("%.17g\n", out[c]);
    if (sfm_predict(scorer, NULL, row, 1, out, &error)) fail("predict", &error);
    for (size_t c = 0; c < sfm_n_outputs(scorer); ++c) {
        const char* label = sfm_n_outputs(scorer) > 1 ? sfm_class_name(scorer, c) : NULL;
        printf("%s%s%.17g\n", label ? label : "", label ? ": " : "", out[c]);
    }
    free(is_number);
    free(row);
    free(out);
    sfm_close(scorer);
    return 0;
}
