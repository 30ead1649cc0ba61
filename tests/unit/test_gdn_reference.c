/* The reference of gdn: against vectors of an independent implementation, and
 * against itself where the same thing can be said in two ways; mistakes that
 * kernels make must be far outside of its tolerances. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check_gdn.h"
#include "seed.h"

#define CASES "tests/cases/gdn.txt"

static uint64_t run_seed;
static kgen__rng rng;

/* ---- helpers ------------------------------------------------------------------ */

typedef struct trial {
    kgen__case c;
    kgen__data data;
    kgen__answer answer;
    kgen__check_result result;
    kgen_error err;
    char line[KGEN__CASE_LINE_MAX];
} trial;

static trial *trial_of(const kgen__case *c, uint64_t seed) {
    const kgen_target *target;
    kgen_spec spec;
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->c = *c;
    kgen__case_draw(&t->c, seed);
    kgen__case_print(t->line, &t->c);
    assert_int_equal(kgen_target_find(&target, "cpu:cdna3", &t->err), KGEN_OK);
    if (kgen_spec_resolve(&spec, &c->spec, target, &t->err) != KGEN_OK ||
        kgen__data_make(&t->data, &t->c, &spec, &t->err) != KGEN_OK ||
        kgen__data_fill(&t->data, seed, &t->err) != KGEN_OK)
        fail_msg("%s: %s", t->line, t->err.text);
    return t;
}

static kgen__case case_of(const char *line) {
    static kgen__case c;
    kgen_error err = {KGEN_OK, ""};
    if (kgen__case_parse(&c, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    return c;
}

static trial *trial_line(const char *line) {
    kgen__case c = case_of(line);
    return trial_of(&c, kgen__rng_next(&rng));
}

static void trial_free(trial *t) {
    kgen__answer_free(&t->answer);
    kgen__data_free(&t->data);
    free(t);
}

static void refer(trial *t) {
    kgen__answer_free(&t->answer);
    if (kgen__gdn_reference(&t->answer, &t->data.spec, &t->data, &t->err) != KGEN_OK)
        fail_msg("%s: %s", t->line, t->err.text);
}

static double clamped(kgen_dtype dtype, double x) {
    double most = kgen__number_max(dtype);
    int saturates = dtype == KGEN_DTYPE_FP16 || kgen_dtype_size(dtype) == 1;
    return saturates ? fmax(-most, fmin(most, x)) : x;
}

/* What a perfect kernel would leave. */
static void apply(kgen__data *data, const kgen__answer *answer) {
    for (int i = 0; i < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_GDN}); i++) {
        const kgen__image *image = &answer->image[i];
        const kgen__slot *slot = &data->slot[i];
        kgen_dtype dtype = kgen__slot_tensor(&data->args, i)->dtype;
        if (!image->bytes) continue;
        memcpy(slot->bytes, image->bytes, slot->size);
        for (int64_t n = 0; n < image->count; n++)
            if (image->tolerance[n] >= 0)
                kgen__number_store(dtype, slot->bytes + slot->offset, n,
                                   clamped(dtype, image->want[n]));
    }
}

static kgen_status compare(trial *t) {
    return kgen__answer_compare(&t->result, &t->data, &t->answer, &t->err);
}

static double want(const trial *t, int slot, int64_t at) { return t->answer.image[slot].want[at]; }

static void close_to(double got, double expected, double relative, const char *what) {
    if (!(fabs(got - expected) <= relative * (1 + fabs(expected))))
        fail_msg("%s: %.17g, must be %.17g", what, got, expected);
}

static void set(const kgen_tensor *t, int64_t at, double value) {
    kgen__number_store(t->dtype, t->data, at, value);
}

static double get(const kgen_tensor *t, int64_t at) {
    return kgen__number_load(t->dtype, t->data, at);
}

/* ---- vectors ------------------------------------------------------------------ */

/* Inputs in 64ths, so that every type holds them, and what an implementation in
 * another language makes of them in double: two key heads, four value heads,
 * all two wide. Below, the outputs and the states of one sequence. */
static const int v_rows[] = {
    3,   -22, -68, -11, -59, 2,   24,  23, 75,  0,   5,   -29, 86,  -13, -9, 70,  -9,  -31,
    40,  96,  87,  -52, 85,  -53, -86, 60, -49, -15, -13, -49, -45, -57, 67, 54,  -96, -71,
    -87, -26, 25,  15,  -8,  85,  81,  87, -92, 7,   36,  -68, 58,  84,  54, -14, -52, -71,
    65,  -77, 90,  82,  -33, -62, 80,  90, 24,  -5,  11,  94,  70,  19,  78, -43, 74,  4};
static const int v_ba[] = {86, 76, -45, 12,   102, 115, -128, -69, 38, 23, 48,  -14,
                           50, 22, 2,   -112, 38,  4,   100,  18,  16, 28, -50, 25};
static const int v_weight[] = {4,   37, -44, -44, 71,  18,  88,  81,  -87, -24, -3,  -49, -91,
                               -22, 12, -31, -52, 30,  -68, -73, -89, 66,  42,  8,   -29, 5,
                               -26, 14, 43,  47,  50,  96,  46,  -16, 58,  -9,  -66, 84,  17,
                               75,  23, -9,  -46, -63, -91, -42, 32,  93,  -58, 94,  94,  86,
                               62,  18, 39,  -60, -32, -27, 12,  -59, 54,  90,  -28, -36};
static const int v_history[] = {
    -72, 81,  -92, 56,  -75, -46, 86,  9,   14,  -82, -70, 60,  55,  -39, 67,  -14,
    -61, -72, -84, -15, -73, -60, -91, -42, -36, -63, -47, 21,  44,  -64, -46, -24,
    -79, 18,  -77, 89,  -10, 13,  -77, 80,  65,  76,  -53, 39,  17,  -74, 84,  72,
    -27, 30,  -40, 15,  94,  -80, -68, -17, 42,  82,  -61, -51, -90, -77, 50,  -56,
    90,  -11, -88, 12,  65,  -40, -63, -64, 32,  -2,  -35, -15, 65,  12,  -75, 78,
    31,  54,  -34, -75, 14,  43,  41,  -67, 86,  -38, -52, 83,  33,  -28, 8,   -43};
static const int v_state[] = {44, -43, 31, 25, -24, 8, 73, 3, -63, -85, 1, 59, -26, 9, -31, -64};
static const int v_a_log[] = {21, 0, 58, 60};
static const int v_dt[] = {37, -11, -14, -23};
static const int v_norm[] = {41, 63};

typedef struct vector_row {
    const char *spec, *shape;
    double out[24], state[16];
} vector_row;

/* No rounding on the way, f32 wherever there is a choice. */
#define EXACT "o=f32,convr=0,or=0,cs=f32,cw=f32,nw=f32,"
#define GATES "ab=f32,alog=f32,dt=f32,"

static const vector_row vectors[] = {
    {"gdn:layout=interleaved," EXACT GATES "hk=2,hv=4",
     "seqs=1 cols=3",
     {-0.42629244258332205, 0, 0.035679015133106715, 0.058734404731150942, -0.97525029019964193,
      -0.033839719783384049, -0.5894557402120908, 0.2750887438090327},
     {0.91829262399444644, -0.24732861812996976, 0.21506859313930235, 0.1629990187707413,
      -0.069829770411926242, 0.067859180296961349, -0.048144578740834221, -0.0076421365051371065,
      -0.82094080189297081, 0.0052674018322078631, 0.058487159472987174, -0.10567681560181175,
      -0.22140127559528197, -0.17196499875486698, -0.29705470487207614, -0.29813088596972009}},
    {"gdn:layout=flat," EXACT GATES "hk=2,hv=4",
     "seqs=1 cols=3",
     {-0.053116300497862826, -0.113645957685826, 0.28248368646376504, -1.0958310620294331,
      -0.97985903854137402, -0.0033225035582210424, -0.64373619124392056, 0.25804323394529721},
     {0.62569587562930251, 0.011833099746515176, 0.16309850314256003, 0.026095568813763528,
      0.081606695937446724, 0.030216810044030602, -0.14475904188488431, -0.01467840230196635,
      -0.84779802032749207, 0.025328941836974428, 0.038511415393363391, 0.38794973794897869,
      -0.23501860214986897, 0.07257167796477737, -0.29441180462267613, -0.41578671237513803}},
    {"gdn:layout=interleaved," EXACT GATES "hk=2,hv=4,t=3,accept=1",
     "seqs=1 cols=1 acc=2",
     {-0.0065763844402726918, -0,
      -0.017937392968413637,  -0.2139518073095347,
      -0.81707678644210857,   0.19190529628952882,
      -0.89308024587233836,   -0.12063433058930277,
      -0.12684114062561894,   0.80778239775240268,
      -0.10750731831921463,   0.34508442723436861,
      0.19997390152180741,    -0.048156342231043751,
      -0.32433791727189221,   -0.0160442640984815,
      0.95667730698663722,    -0.49527457543328252,
      0.084586472610107377,   0.32460701442448547,
      -0.79658795360810386,   -0.11238793809852878,
      0.49102012088045843,    -0.03533103218191163},
     {-0.06177725419543724, 0.258709114123373, 0.022998607816494612, -0.098151008488333497,
      0.062098653847087348, -0.10788100771505071, -0.021983221294334134, -0.1877470890696048,
      0.18126856954560347, 0.4024382277377771, -0.089295806469906661, -0.13791105178582314,
      -0.10590768874841959, -0.1507033772392441, 0.11156305373230763, 0.21024965262506815}},
    {"gdn:layout=flat," EXACT GATES "hk=2,hv=4,t=3,accept=1",
     "seqs=1 cols=1 acc=3",
     {0.05264058518696086,   0.11782738751550617,   -0.1527528048846073,  1.5532230970209684,
      -0.49916685090573165,  0.29915039889865042,   -0.85804593070314084, 0.1512705186538876,
      -0.052710086028940117, -0.17432756900723401,  0.85790639019783022,  -0.4254728172137292,
      -0.24754089569456153,  -0.011145212078602085, -0.27846527258109277, 0.19525247394619299,
      0.035230229947921014,  1.5108181018189693,    0.72137703434123956,  -0.055868263129886839,
      0.71205422570284793,   0.17374517397525005,   0.067454104250607994, 0.044701589996349184},
     {-0.052485766223022846, 0.40113632436446039, -0.34011119020911845, 0.89762418152795254,
      -0.074157645761559254, 0.65935853888751006, -0.00014550942088249752, -0.1580493089606764,
      0.28746967981548321, -0.90746416450206546, -0.21122106691376291, 0.13930436594613499,
      0.1087495854050714, -0.019765895954988105, 1.2753239633072297, -0.3293015244291812}},
    {"gdn:fuse=a,layout=presplit,gate=kda,o=f32," GATES "hk=2,hv=2,t=2",
     "seqs=1",
     {-0.041794820093435367, -0.043389614583834633, 0.067329208555083564, -0.043278158706748671,
      -0.09836804709126673, -0.13570388020863697, -0.4803127613045014, -0.42811115219102375},
     {-0.30514589510823276, -0.68050393177390922, -0.15114192824284059, -0.55204479674555096,
      0.47009525323650353, 0.78493026356006634, 0.55806978200815061, 0.24534085260222349}},
    {"gdn:fuse=a,layout=presplit,gate=kda_bound,o=f32," GATES "hk=2,hv=2,t=2",
     "seqs=1",
     {-0.10772252351500311, -0.0049110977561156004, -0.0055441020824638643, 0.13456225701258093,
      -0.16445366626153429, -0.14017255322415356, -0.50922047691435945, -0.37860941065976322},
     {-0.19858643297022102, -0.6911070501231904, -0.14847456410502047, -0.55926642352232514,
      0.53922868633252019, 0.69875861872017964, 0.41597848315510821, 0.47034390536857346}},
};

static void put_all(const kgen_tensor *t, const int *values, int count) {
    for (int i = 0; t->data && i < count; i++) set(t, i, values[i] / 64.0);
}

static void put_rows(kgen_gdn_args *a, int tokens, int kda) {
    for (int t = 0; t < tokens; t++) {
        for (int i = 0; a->qkvz.data && i < 24; i++)
            set(&a->qkvz, t * a->qkvz.stride[0] + i, v_rows[t * 24 + i] / 64.0);
        for (int i = 0; a->ba.data && i < 8; i++)
            set(&a->ba, t * a->ba.stride[0] + i, v_ba[t * 8 + i] / 64.0);
        for (int i = 0; kda && i < 12; i++)
            set(&a->x, t * a->x.stride[0] + i, v_rows[t * 24 + i] / 64.0);
        for (int i = 0; kda && i < 4; i++)
            set(&a->a, t * a->a.stride[0] + i, v_ba[t * 8 + i] / 64.0);
        for (int i = 0; kda && i < 2; i++)
            set(&a->b, t * a->b.stride[0] + i, v_ba[t * 8 + 4 + i] / 64.0);
    }
}

static void put_states(kgen__data *data) {
    kgen_gdn_args *a = data->args.gdn;
    kgen__gdn_seq q = kgen__gdn_sequence(&data->spec.gdn, a, 0);
    int elements = data->spec.gdn.v_heads * 4;
    for (int i = 0; i < elements; i++)
        set(&a->state, q.read * a->state.stride[0] + i, v_state[i] / 64.0);
    for (int i = 0; a->conv_state.data && i < 6 * 16; i++)
        set(&a->conv_state, kgen__gdn_conv_at(&a->conv_state, q.read, i % 16, i / 16),
            v_history[i] / 64.0);
}

/* Heads are two wide here, which no kernel is: the spec is changed afterwards. */
static void check_vector(const vector_row *row) {
    char line[512];
    const kgen_target *target;
    kgen_spec spec;
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    snprintf(line, sizeof line, "%s | %s", row->spec, row->shape);
    t->c = case_of(line);
    kgen__case_draw(&t->c, 1);
    assert_int_equal(kgen_target_find(&target, "cpu:cdna3", NULL), KGEN_OK);
    assert_int_equal(kgen_spec_resolve(&spec, &t->c.spec, target, NULL), KGEN_OK);
    spec.gdn.k_dim = spec.gdn.v_dim = 2;
    assert_int_equal(kgen__data_make(&t->data, &t->c, &spec, NULL), KGEN_OK);
    assert_int_equal(kgen__data_fill(&t->data, 1, NULL), KGEN_OK);
    kgen_gdn_args *a = t->data.args.gdn;
    int heads = spec.gdn.v_heads, kda = spec.gdn.gate != KGEN_GATE_GDN;
    put_rows(a, spec.gdn.tokens, kda);
    put_all(&a->conv_weight, v_weight, 64);
    put_all(&a->a_log, v_a_log, heads);
    put_all(&a->dt_bias, v_dt, 4);
    put_all(&a->norm_weight, v_norm, 2);
    put_states(&t->data);
    kgen__data_remember(&t->data);
    refer(t);
    kgen__gdn_seq q = kgen__gdn_sequence(&spec.gdn, a, 0);
    for (int i = 0; i < spec.gdn.tokens * heads * 2; i++)
        close_to(want(t, OUT, i), row->out[i], 1e-7, line);
    for (int i = 0; i < heads * 4; i++)
        close_to(want(t, STATE, q.write * a->state.stride[0] + i), row->state[i], 1e-7, line);
    trial_free(t);
}

static void known_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) check_vector(&vectors[i]);
}

/* ---- layouts ------------------------------------------------------------------ */

static void check_permutation(const kgen__gdn_dims *d, int32_t layout) {
    int64_t width = d->c + d->vd;
    char *seen = calloc((size_t)(width + 2 * d->hv), 1), *gates = seen + width;
    assert_non_null(seen);
    for (int64_t f = 0; f < width; f++) seen[kgen__gdn_column(d, layout, f)]++;
    for (int64_t hv = 0; hv < d->hv; hv++) {
        gates[kgen__gdn_b_column(d, layout, hv)]++;
        gates[kgen__gdn_a_column(d, layout, hv)]++;
    }
    for (int64_t i = 0; i < width + 2 * d->hv; i++) assert_int_equal(seen[i], 1);
    free(seen);
}

/* A rank has a contiguous part of an interleaved row. */
static void check_ranks(const kgen__gdn_dims *all, kgen_gdn_spec part_spec, int64_t ranks) {
    part_spec.k_heads /= (int32_t)ranks;
    part_spec.v_heads /= (int32_t)ranks;
    kgen__gdn_dims part = kgen__gdn_dims_of(&part_spec);
    int64_t width = part.c + part.vd, value = 2 * all->kd;
    for (int64_t rank = 0; rank < ranks; rank++) {
        for (int64_t i = 0; i < part.kd; i++)
            assert_int_equal(kgen__gdn_column(all, KGEN_ROWS_INTERLEAVED, rank * part.kd + i),
                             rank * width + kgen__gdn_column(&part, KGEN_ROWS_INTERLEAVED, i));
        for (int64_t i = 0; i < part.vd; i++)
            for (int z = 0; z < 2; z++)
                assert_int_equal(kgen__gdn_column(all, KGEN_ROWS_INTERLEAVED,
                                                  value + z * all->vd + rank * part.vd + i),
                                 rank * width + kgen__gdn_column(&part, KGEN_ROWS_INTERLEAVED,
                                                                 2 * part.kd + z * part.vd + i));
    }
}

static void layouts_are_permutations(void **state) {
    (void)state;
    static const int32_t heads[][2] = {{16, 32}, {16, 64}, {16, 48}, {16, 16}, {2, 4},
                                       {2, 6},   {8, 32},  {1, 8},   {3, 9}};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        kgen_gdn_spec s = {
            .k_heads = heads[i][0], .v_heads = heads[i][1], .k_dim = 64, .v_dim = i % 2 ? 64 : 128};
        kgen__gdn_dims d = kgen__gdn_dims_of(&s);
        check_permutation(&d, KGEN_ROWS_INTERLEAVED);
        check_permutation(&d, KGEN_ROWS_FLAT);
        if (s.k_heads % 2 == 0) check_ranks(&d, s, 2);
        if (s.k_heads % 8 == 0) check_ranks(&d, s, 8);
    }
}

/* ---- launches in a row -------------------------------------------------------- */

/* Rows of inputs from one trial's to another's; both are presplit. */
static void copy_row(trial *to, int64_t to_row, const trial *from, int64_t from_row) {
    static const int tensors[] = {X, Z, B, A};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        kgen_tensor *a = kgen__slot_tensor(&to->data.args, tensors[i]);
        kgen_tensor *b = kgen__slot_tensor(&from->data.args, tensors[i]);
        for (int64_t n = 0; a->data && n < a->shape[1]; n++)
            set(a, to_row * a->stride[0] + n, get(b, from_row * b->stride[0] + n));
    }
}

static void copy_weights(trial *to, const trial *from) {
    for (int i = CONV_WEIGHT; i <= NORM_WEIGHT; i++)
        if (to->data.slot[i].bytes)
            memcpy(to->data.slot[i].bytes, from->data.slot[i].bytes, from->data.slot[i].size);
}

/* Sequence 0's state and window. Of a window, the columns that are read. */
static void copy_state(trial *to, const trial *from) {
    const kgen_gdn_spec *s = &to->data.spec.gdn;
    kgen_gdn_args *a = to->data.args.gdn;
    const kgen_gdn_args *b = from->data.args.gdn;
    kgen__gdn_seq p = kgen__gdn_sequence(s, a, 0);
    kgen__gdn_seq q = kgen__gdn_sequence(&from->data.spec.gdn, b, 0);
    int64_t elements = (int64_t)s->v_heads * s->k_dim * s->v_dim;
    for (int64_t i = 0; i < elements; i++)
        set(&a->state, p.read * a->state.stride[0] + i,
            get(&b->state, q.read * b->state.stride[0] + i));
    for (int64_t c = 0; a->conv_state.data && c < kgen__gdn_dims_of(s).c; c++)
        for (int64_t i = 0; i < s->conv_width - 1; i++)
            set(&a->conv_state, kgen__gdn_conv_at(&a->conv_state, p.conv_read, c, p.offset + i),
                get(&b->conv_state,
                    kgen__gdn_conv_at(&b->conv_state, q.conv_read, c, q.offset + i)));
}

/* A launch of what the slots hold now; they hold its results afterwards. */
static void run(trial *t) {
    kgen__data_remember(&t->data);
    refer(t);
    apply(&t->data, &t->answer);
}

static void same_row(const trial *a, int64_t row, const trial *b, int64_t other, double relative) {
    const kgen_tensor *x = &a->data.args.gdn->out, *y = &b->data.args.gdn->out;
    for (int64_t hv = 0; hv < x->shape[1]; hv++)
        for (int64_t i = 0; i < x->shape[2]; i++)
            close_to(want(a, OUT, row * x->stride[0] + hv * x->stride[1] + i),
                     want(b, OUT, other * y->stride[0] + hv * y->stride[1] + i), relative, a->line);
}

#define STEPS "layout=presplit,hk=1,hv=2,dk=64,dv=64,o=f32,ab=f32"
#define SMALL STEPS ",cs=f32,convr=0,or=0"
#define DENSE " | seqs=1 extremes=0"

/* Two launches of four tokens, `accepted` of the first kept, give what single
 * steps over the kept tokens give. */
static void check_drafts(const char *options, int32_t accepted) {
    char line[256], single[256];
    snprintf(line, sizeof line, "gdn:" SMALL ",t=4,index=spec,accept=1,save=slots%s" DENSE,
             options);
    snprintf(single, sizeof single, "gdn:" SMALL "%s" DENSE, options);
    trial *t = trial_line(line), *one = trial_line(single);
    trial *next = trial_line("gdn:" SMALL ",t=4" DENSE);
    copy_weights(one, t);
    copy_state(one, t);
    trial *first = trial_line("gdn:" SMALL ",t=4" DENSE);
    for (int i = 0; i < 4; i++) copy_row(first, i, t, i);
    run(t);
    for (int i = 0; i < accepted; i++) {
        copy_row(one, 0, first, i);
        run(one);
        same_row(t, i, one, 0, 1e-6);
    }
    kgen__int_store(&t->data.args.gdn->accepted, 0, accepted);
    for (int i = 0; i < 4; i++) copy_row(t, i, next, i);
    run(t);
    for (int i = 0; i < 4; i++) {
        copy_row(one, 0, next, i);
        run(one);
        same_row(t, i, one, 0, 1e-5);
    }
    trial_free(first);
    trial_free(next);
    trial_free(one);
    trial_free(t);
}

static void drafts_are_single_steps(void **state) {
    (void)state;
    for (int32_t accepted = 1; accepted <= 4; accepted++) {
        check_drafts("", accepted);
        check_drafts(",cl=ds,sl=kv", accepted);
        check_drafts(",w=3,bias=1,cl=ds", accepted);
        check_drafts(",w=2", accepted);
    }
}

/* The ring, folded now and then, holds what single steps do. */
static void rings_are_single_steps(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        trial *t = trial_line("gdn:fuse=a," STEPS ",t=2,save=replay,ring=5" DENSE " rows=2");
        trial *one = trial_line("gdn:fuse=a," STEPS DENSE);
        trial *rows = trial_line("gdn:fuse=a," STEPS ",t=2" DENSE);
        kgen_gdn_args *a = t->data.args.gdn;
        copy_weights(one, t);
        copy_state(one, t);
        int64_t start = kgen__int_load(&a->ring_start, 0), length = 0;
        int folds = 0;
        for (int launch = 0; launch < 12; launch++) {
            int64_t accepted = kgen__rng_range(&rng, 1, 2);
            kgen__data_refill(&rows->data, &rng, NULL);
            copy_row(t, 0, rows, 0);
            copy_row(t, 1, rows, 1);
            kgen__int_store(&a->ring_start, 0, start);
            kgen__int_store(&a->ring_len, 0, length);
            run(t);
            for (int64_t i = 0; i < accepted; i++) {
                copy_row(one, 0, rows, i);
                run(one);
                same_row(t, i, one, 0, 1e-5);
            }
            int folded = length + 2 > 5;
            start += folded ? length : 0;
            length = (folded ? 0 : length) + accepted;
            folds += folded;
        }
        assert_true(folds >= 2);
        trial_free(rows);
        trial_free(one);
        trial_free(t);
    }
}

/* Every path from the root of a tree, run as a chain. */
static void check_path(const trial *tree, int64_t leaf) {
    trial *chain = trial_line("gdn:" SMALL ",t=6,save=buffer,varlen=1" DENSE);
    const kgen_gdn_spec *s = &tree->data.spec.gdn;
    int64_t path[6], depth = 0;
    for (int64_t t = leaf; t >= 0; t = kgen__gdn_parent(s, tree->data.args.gdn, 0, t))
        path[depth++] = t;
    kgen__int_store(&chain->data.args.gdn->cu_seqlens, 1, depth);
    copy_weights(chain, tree);
    copy_state(chain, tree);
    for (int64_t i = 0; i < depth; i++) copy_row(chain, i, tree, path[depth - 1 - i]);
    kgen__data_remember(&chain->data);
    refer(chain);
    for (int64_t i = 0; i < depth; i++) same_row(tree, path[depth - 1 - i], chain, i, 1e-5);
    trial_free(chain);
}

static void trees_are_chains(void **state) {
    (void)state;
    for (int round = 0; round < 4; round++) {
        trial *tree = trial_line("gdn:" SMALL ",t=6,save=buffer,tree=1" DENSE);
        refer(tree);
        for (int64_t leaf = 0; leaf < 6; leaf++) check_path(tree, leaf);
        trial_free(tree);
    }
}

/* ---- a thousand steps ---------------------------------------------------------- */

/* One step of one value, in one pass: the sums over the old state alone. */
static double one_pass(double *s, const double *q, const double *k, double v, double decay,
                       double beta) {
    double sk = 0, sq = 0, kq = 0;
    for (int i = 0; i < 64; i++) {
        sk += decay * s[i] * k[i];
        sq += decay * s[i] * q[i];
        kq += k[i] * q[i];
    }
    double u = beta * (v - sk);
    for (int i = 0; i < 64; i++) s[i] = decay * s[i] + u * k[i];
    return sq + u * kq;
}

static void unit(double *out, const kgen_tensor *x, int64_t first, double scale) {
    double squares = 0;
    for (int i = 0; i < 64; i++) squares += get(x, first + i) * get(x, first + i);
    for (int i = 0; i < 64; i++) out[i] = get(x, first + i) * scale / sqrt(squares + 1e-6);
}

/* The largest error of an output in the last steps, relative to their size. */
static double drift(const char *line, int steps) {
    trial *t = trial_line(line);
    kgen_gdn_args *a = t->data.args.gdn;
    double *s = malloc(64 * 64 * sizeof *s), worst = 0, size = 0;
    assert_non_null(s);
    kgen__gdn_seq seq = kgen__gdn_sequence(&t->data.spec.gdn, a, 0);
    for (int i = 0; i < 64 * 64; i++) s[i] = get(&a->state, seq.read * a->state.stride[0] + i);
    for (int n = 0; n < steps; n++) {
        double q[64], k[64];
        for (int i = 0; i < 3 * 64; i++) set(&a->x, i, kgen__rng_normal(&rng));
        set(&a->a, 0, -2 + kgen__rng_normal(&rng));
        set(&a->b, 0, kgen__rng_normal(&rng));
        double x = get(&a->a, 0) + get(&a->dt_bias, 0);
        double decay = exp(-exp(get(&a->a_log, 0)) * log(1 + exp(x)));
        double beta = 1 / (1 + exp(-get(&a->b, 0)));
        unit(q, &a->x, 0, 0.125);
        unit(k, &a->x, 64, 1);
        run(t);
        for (int v = 0; v < 64; v++) {
            double o = one_pass(s + v * 64, q, k, get(&a->x, 128 + v), decay, beta);
            worst = n > steps / 2 ? fmax(worst, fabs(o - want(t, OUT, v))) : worst;
            size = fmax(size, fabs(o));
        }
    }
    free(s);
    trial_free(t);
    return worst / size;
}

static void states_do_not_drift(void **state) {
    (void)state;
    double f32 = drift("gdn:fuse=a,layout=presplit,hk=1,hv=1,dk=64,dv=64,o=f32" DENSE, 1000);
    double bf16 =
        drift("gdn:fuse=a,layout=presplit,hk=1,hv=1,dk=64,dv=64,o=f32,state=bf16" DENSE, 1000);
    print_message("drift over 1000 steps: f32 %.2g, bf16 %.2g\n", f32, bf16);
    assert_true(f32 < 1e-5);
    assert_true(bf16 > 1e-4 && bf16 < 0.05);
}

/* ---- mistakes ------------------------------------------------------------------ */

static void swap_gates(kgen__data *d, kgen_spec *s) {
    kgen_tensor b = d->args.gdn->b;
    (void)s;
    d->args.gdn->b = d->args.gdn->a;
    d->args.gdn->a = b;
}
static void other_layout(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.layout = s->gdn.layout == KGEN_ROWS_FLAT ? KGEN_ROWS_INTERLEAVED : KGEN_ROWS_FLAT;
}
static void other_order(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.state_layout = s->gdn.state_layout == KGEN_STATE_VK ? KGEN_STATE_KV : KGEN_STATE_VK;
}
static void other_map(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.head_map = !s->gdn.head_map;
}
static void no_l2(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.l2norm = 0;
}
static void no_l2_eps(kgen__data *d, kgen_spec *s) {
    (void)s;
    d->args.gdn->l2_eps = 0;
}
static void no_norm_eps(kgen__data *d, kgen_spec *s) {
    (void)s;
    d->args.gdn->norm_eps = 0;
}
static void no_q_scale(kgen__data *d, kgen_spec *s) {
    (void)s;
    d->args.gdn->q_scale = 1;
}
static void no_bias(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.conv_bias = 0;
}
static void no_silu(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.conv_act = 0;
}
static void other_gate(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.gate = s->gdn.gate == KGEN_GATE_KDA ? KGEN_GATE_KDA_BOUND : KGEN_GATE_KDA;
}
static void other_out_gate(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.out_gate = !s->gdn.out_gate;
}
static void one_plus_weight(kgen__data *d, kgen_spec *s) {
    (void)s;
    const kgen_tensor *w = &d->args.gdn->norm_weight;
    for (int64_t i = 0; i < w->shape[0]; i++) set(w, i, 1 + get(w, i));
}
static void no_decay(kgen__data *d, kgen_spec *s) {
    (void)s;
    const kgen_tensor *w = &d->args.gdn->a_log;
    for (int64_t i = 0; i < w->shape[0]; i++) set(w, i, -60);
}
static void no_dt_bias(kgen__data *d, kgen_spec *s) {
    (void)s;
    const kgen_tensor *w = &d->args.gdn->dt_bias;
    for (int64_t i = 0; i < w->shape[0]; i++) set(w, i, 0);
}
static void accepted_off(kgen__data *d, kgen_spec *s) {
    (void)s;
    const kgen_tensor *t = &d->args.gdn->accepted;
    for (int64_t i = 0; i < t->shape[0]; i++)
        kgen__int_store(t, i, kgen__int_load(t, i) == 1 ? 2 : kgen__int_load(t, i) - 1);
}
static void reversed_weights(kgen__data *d, kgen_spec *s) {
    const kgen_tensor *w = &d->args.gdn->conv_weight;
    int64_t width = s->gdn.conv_width;
    for (int64_t i = 0; i < w->shape[0]; i++) {
        double first = get(w, i * width);
        set(w, i * width, get(w, i * width + width - 1));
        set(w, i * width + width - 1, first);
    }
}
static void writes_where_it_reads(kgen__data *d, kgen_spec *s) {
    (void)s;
    const kgen_gdn_args *a = d->args.gdn;
    for (int64_t i = 0; i < a->slots.shape[0]; i++)
        kgen__int_store(&a->write_slots, i * a->write_slots.stride[0],
                        kgen__int_load(&a->slots, i * a->slots.stride[0]));
}
static void last_state_only(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.save = KGEN_SAVE_FINAL;
}
static void no_tree(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.tree = 0;
}
static void ring_off(kgen__data *d, kgen_spec *s) {
    (void)s;
    const kgen_tensor *t = &d->args.gdn->ring_start;
    for (int64_t i = 0; i < t->shape[0]; i++) kgen__int_store(t, i, kgen__int_load(t, i) + 1);
}
static void folds_late(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.ring++;
}
static void rounds_state(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.state_round = !s->gdn.state_round;
}
static void rounds_beta(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.beta_round = !s->gdn.beta_round;
}
static void rounds_conv(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.conv_round = !s->gdn.conv_round;
}
static void rounds_out(kgen__data *d, kgen_spec *s) {
    (void)d;
    s->gdn.o_round = !s->gdn.o_round;
}
static void rows_off(kgen__data *d, kgen_spec *s) {
    (void)s;
    kgen_tensor *x = &d->args.gdn->z;
    x->data = (char *)x->data - kgen_dtype_size(x->dtype);
}

#define PLAIN "hk=2,hv=4,dk=64,dv=64"
#define CALM " | seqs=2 extremes=0"

static const struct {
    void (*fault)(kgen__data *, kgen_spec *);
    const char *line;
} faults[] = {
    {other_layout, "gdn:layout=flat," PLAIN CALM " poison=0"},
    {other_layout, "gdn:layout=interleaved," PLAIN CALM " poison=0"},
    {other_layout, "gdn:fuse=a,layout=flat,x=bf16,state=bf16," PLAIN CALM},
    {other_layout, "gdn:fuse=c,layout=interleaved," PLAIN CALM},
    {swap_gates, "gdn:fuse=a,layout=presplit," PLAIN CALM},
    {swap_gates, "gdn:layout=presplit,state=bf16,t=2," PLAIN CALM},
    {other_order, "gdn:layout=flat," PLAIN CALM},
    {other_order, "gdn:layout=flat,sl=kv,state=bf16," PLAIN CALM},
    {other_map, "gdn:layout=flat," PLAIN CALM},
    {other_map, "gdn:fuse=a,layout=presplit,map=tiled,hk=2,hv=6,dk=64,dv=64" CALM},
    {no_l2, "gdn:layout=flat," PLAIN CALM},
    {no_l2_eps, "gdn:fuse=a,layout=presplit,o=f32," PLAIN CALM " xstd=0.003"},
    {no_norm_eps, "gdn:layout=presplit,o=f32," PLAIN CALM " xstd=0.003 sstd=0.003"},
    {no_q_scale, "gdn:fuse=d,layout=flat," PLAIN CALM},
    {no_bias, "gdn:layout=flat,bias=1," PLAIN CALM},
    {no_silu, "gdn:fuse=c,layout=flat," PLAIN CALM},
    {other_gate, "gdn:layout=presplit,gate=kda,hk=2,hv=2,dk=64,dv=64" CALM},
    {other_gate, "gdn:layout=presplit,gate=kda_bound,hk=2,hv=2,dk=64,dv=64" CALM},
    {other_out_gate, "gdn:layout=flat," PLAIN CALM},
    {one_plus_weight, "gdn:layout=flat," PLAIN CALM},
    {no_decay, "gdn:layout=flat," PLAIN CALM},
    {no_dt_bias, "gdn:layout=flat," PLAIN CALM},
    {accepted_off, "gdn:layout=flat,t=3,accept=1," PLAIN CALM " acc=1,2 poison=0"},
    {accepted_off, "gdn:fuse=c,layout=flat,t=3,accept=1,cl=ds," PLAIN CALM " acc=3,2 poison=0"},
    {accepted_off,
     "gdn:fuse=a,layout=flat,t=3,index=spec,accept=1,save=slots," PLAIN CALM " acc=1 poison=0"},
    {reversed_weights, "gdn:layout=flat," PLAIN CALM},
    {writes_where_it_reads, "gdn:layout=flat,index=pair," PLAIN CALM},
    {last_state_only, "gdn:layout=flat,t=2,index=spec,accept=1,save=slots," PLAIN CALM},
    {no_tree, "gdn:layout=flat,t=8,save=buffer,tree=1," PLAIN CALM},
    {ring_off, "gdn:layout=flat,save=replay,ring=4," PLAIN CALM " ring=2,4 poison=0"},
    {folds_late, "gdn:layout=flat,save=replay,ring=4," PLAIN CALM " ring=4"},
    {rounds_state, "gdn:fuse=a,layout=flat,t=2,state=bf16,o=f32," PLAIN CALM},
    {rounds_beta, "gdn:fuse=a,layout=flat,o=f32," PLAIN CALM},
    {rounds_conv, "gdn:fuse=d,layout=flat,o=f32," PLAIN CALM},
    {rounds_out, "gdn:layout=flat,o=f32," PLAIN CALM},
    {rows_off, "gdn:layout=presplit," PLAIN CALM " poison=0 off=1"},
};

/* What the wrong launch leaves, in place of what the right one would. */
static void leave_mistake(trial *t, void (*fault)(kgen__data *, kgen_spec *)) {
    kgen__answer wrong;
    kgen_spec spec = t->data.spec;
    kgen_gdn_args kept = *t->data.args.gdn;
    fault(&t->data, &spec);
    if (kgen__gdn_reference(&wrong, &spec, &t->data, &t->err) != KGEN_OK)
        fail_msg("%s: %s", t->line, t->err.text);
    *t->data.args.gdn = kept;
    apply(&t->data, &wrong);
    kgen__answer_free(&wrong);
}

static void mistakes_are_found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        trial *t = trial_line(faults[i].line);
        refer(t);
        apply(&t->data, &t->answer);
        if (compare(t) != KGEN_OK) fail_msg("%s: %s", t->line, t->err.text);
        leave_mistake(t, faults[i].fault);
        if (compare(t) != KGEN_E_MISMATCH) fail_msg("mistake %zu is not found: %s", i, t->line);
        int bytes = strstr(t->err.text, "byte") != NULL;
        if (!bytes && !(t->result.max_ratio > 5))
            fail_msg("mistake %zu: only %g tolerances: %s", i, t->result.max_ratio, t->line);
        trial_free(t);
    }
}

/* ---- writes --------------------------------------------------------------------- */

static void must_refuse(trial *t, int slot, size_t byte) {
    unsigned char *at = &t->data.slot[slot].bytes[byte], old = *at;
    *at ^= 0x55;
    if (compare(t) != KGEN_E_MISMATCH)
        fail_msg("%s: byte %zu of %s may change", t->line, byte,
                 kgen__slot_name(&(kgen_args){.family = KGEN_FAMILY_GDN}, slot));
    *at = old;
}

/* Every byte that no expectation stands for, and every guard, here and there. */
static void writes_are_watched(void **state) {
    (void)state;
    static const char *const lines[] = {
        "gdn:layout=flat," PLAIN
        " | seqs=3 pads=1 tail=1 slotpad=1 extra=1 outpad=2 headpad=1 cols=1",
        "gdn:fuse=c,layout=flat,t=2,varlen=1," PLAIN " | lens=2,0,1 pads=1 tail=1 outpad=1",
        "gdn:layout=flat,t=2,save=buffer,varlen=1," PLAIN " | lens=1,2 lines=1 slotpad=1 steps=1",
        "gdn:layout=flat,save=replay,ring=4," PLAIN " | seqs=2 ring=1,4 slotpad=1 rows=1",
        "gdn:layout=flat,hk=1,hv=2,dk=64,o=fp8 | seqs=2 pads=1 tail=1 scalet=1 outpad=3"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        trial *t = trial_line(lines[i]);
        refer(t);
        apply(&t->data, &t->answer);
        assert_int_equal(compare(t), KGEN_OK);
        for (int s = 0; s < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_GDN}); s++) {
            const kgen__image *image = &t->answer.image[s];
            const kgen__slot *slot = &t->data.slot[s];
            if (!image->bytes) continue;
            must_refuse(t, s, 0);
            must_refuse(t, s, slot->offset - 1);
            must_refuse(t, s, slot->size - 1);
            must_refuse(t, s, slot->size - KGEN__GUARD_BYTES);
            size_t each = (slot->size - slot->offset - KGEN__GUARD_BYTES) / (size_t)image->count;
            for (int64_t n = 0; n < image->count; n += 1 + image->count / 60)
                if (image->tolerance[n] < 0) must_refuse(t, s, slot->offset + (size_t)n * each);
        }
        kgen__data_poison_outputs(&t->data);
        assert_int_equal(compare(t), KGEN_E_MISMATCH);
        trial_free(t);
    }
}

/* Sequences that are not computed, and rows of nobody: zeros, nothing else. */
static void padding_is_zeros(void **state) {
    (void)state;
    static const char *const lines[] = {
        "gdn:layout=flat," PLAIN " | seqs=3 pads=3 tail=2",
        "gdn:layout=flat,t=2,accept=1," PLAIN " | seqs=3 acc=0,99,16777216",
        "gdn:fuse=a,layout=flat,t=2,index=spec,accept=1,save=slots," PLAIN " | seqs=2 acc=0,9",
        "gdn:layout=flat,t=2,varlen=1," PLAIN " | seqs=0 tail=3"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        trial *t = trial_line(lines[i]);
        refer(t);
        for (int s = 0; s < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_GDN}); s++) {
            const kgen__image *image = &t->answer.image[s];
            for (int64_t n = 0; n < image->count; n++) assert_true(image->tolerance[n] < 0);
            if (!image->bytes || s == OUT) continue;
            assert_memory_equal(image->bytes, t->data.slot[s].before, t->data.slot[s].size);
        }
        const kgen__image *out = &t->answer.image[OUT];
        for (size_t n = out->offset; n < t->data.slot[OUT].size - KGEN__GUARD_BYTES; n++)
            assert_int_equal(out->bytes[n], 0);
        trial_free(t);
    }
}

/* ---- cases ---------------------------------------------------------------------- */

/* What peers allow: 1e-2 and 1e-3 of an output, 1e-4 and 1e-5 of an f32 state,
 * one step and 1e-3 of a 16-bit one. */
static double peers_allow(const kgen_gdn_spec *s, int slot, double value) {
    if (slot == OUT) return 1e-2 * fabs(value) + 1e-3;
    return s->state == KGEN_DTYPE_F32 ? 1e-4 * fabs(value) + 1e-5 : fabs(value) / 128 + 1e-3;
}

/* Everything that nothing reads is NaN, so a stray read shows. For ordinary
 * inputs tolerances are far below the peers' on the average, and a few of theirs
 * where terms cancel. Outputs of the convolution that are rounded may be a step apart
 * now and then, which the average shows alone. */
static void check_answers(const trial *t) {
    const kgen_gdn_spec *s = &t->data.spec.gdn;
    int calm = !t->c.gdn.extremes && s->l2norm, rounds = kgen__gdn_has_conv(s) && s->conv_round;
    for (int i = 0; i < kgen__slot_count(&(kgen_args){.family = KGEN_FAMILY_GDN}); i++) {
        const kgen__image *image = &t->answer.image[i];
        int compared = i == OUT ? kgen_dtype_size((kgen_dtype)s->out) > 1 : i == STATE;
        double sum = 0, most = 0;
        int64_t count = 0;
        for (int64_t n = 0; n < image->count; n++) {
            double value = image->want[n], tolerance = (double)image->tolerance[n];
            if (tolerance < 0) continue;
            if (!isfinite(value) || !isfinite(tolerance))
                fail_msg("%s: %s: %g within %g", t->line,
                         kgen__slot_name(&(kgen_args){.family = KGEN_FAMILY_GDN}, i), value,
                         tolerance);
            most = fmax(most, tolerance / peers_allow(s, i, value));
            sum += tolerance / peers_allow(s, i, value);
            count++;
        }
        double tokens = s->tokens; /* each step adds to the bound */
        double mean = rounds ? 4 + tokens : 0.5 * tokens;
        int loose = sum > mean * (double)count || (!rounds && most > 16 * tokens);
        if (calm && compared && loose)
            fail_msg("%s: %s: tolerances %g of the peers', %g at most", t->line,
                     kgen__slot_name(&(kgen_args){.family = KGEN_FAMILY_GDN}, i),
                     sum / (double)count, most);
    }
}

static void answers_are_finite_and_tight(void **state) {
    (void)state;
    kgen__case *cases, c;
    size_t count;
    const kgen_target *target;
    kgen_error err = {KGEN_OK, ""};
    assert_int_equal(kgen_target_find(&target, "cpu:cdna3", &err), KGEN_OK);
    if (kgen__cases_load(&cases, &count, CASES, &err) != KGEN_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < count + 100; i++) {
        if (!test_takes(run_seed, i, 1, 3)) continue;
        if (i < count)
            c = cases[i];
        else
            assert_int_equal(kgen__case_random(&c, KGEN_FAMILY_GDN, &rng, target, 6, &err),
                             KGEN_OK);
        if (i % 2 && c.gdn.sstd < 2) c.gdn.extremes = 0;
        trial *t = trial_of(&c, kgen__rng_next(&rng));
        refer(t);
        check_answers(t);
        apply(&t->data, &t->answer);
        if (compare(t) != KGEN_OK) fail_msg("%s: %s", t->line, t->err.text);
        trial_free(t);
    }
    free(cases);
}

static void same_after_print(const kgen__case *c) {
    static char line[KGEN__CASE_LINE_MAX], copy[KGEN__CASE_LINE_MAX];
    kgen__case back;
    kgen_error err = {KGEN_OK, ""};
    kgen__case_print(line, c);
    if (kgen__case_parse(&back, line, &err) != KGEN_OK) fail_msg("%s: %s", line, err.text);
    kgen__case_print(copy, &back);
    assert_string_equal(line, copy);
    assert_int_equal(back.seqs, c->seqs);
    assert_memory_equal(&back.gdn.pads, &c->gdn.pads,
                        sizeof c->gdn - offsetof(kgen__gdn_case, pads));
}

static void cases_round_trip(void **state) {
    (void)state;
    int level[6] = {0}, save[5] = {0}, index[4] = {0}, tokens[17] = {0}, heads[257] = {0};
    int empty = 0, none = 0;
    for (int i = 0; i < 3000; i++) {
        kgen__case c;
        assert_int_equal(kgen__case_random(&c, KGEN_FAMILY_GDN, &rng, NULL, 0, NULL), KGEN_OK);
        if (i < 300) same_after_print(&c);
        level[c.spec.gdn.fuse]++;
        save[c.spec.gdn.save]++;
        index[c.spec.gdn.index]++;
        tokens[c.spec.gdn.tokens]++;
        heads[c.spec.gdn.v_heads / c.spec.gdn.k_heads]++;
        none += c.seqs == 0;
        for (int32_t n = 0; n < c.seqs; n++) empty += c.gdn.lens[n].low == 0;
    }
    for (int i = KGEN_FUSE_A; i <= KGEN_FUSE_E; i++) assert_true(level[i]);
    for (int i = 0; i < 5; i++) assert_true(save[i]);
    for (int i = 0; i < 4; i++) assert_true(index[i]);
    for (int i = 1; i <= 9; i++) assert_true(tokens[i]);
    assert_true(tokens[16]);
    assert_true(heads[1] && heads[2] && heads[3] && heads[4] && heads[8] && empty && none);
}

static void bad_cases_are_refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"gdn:hk=1,hv=2 | seqs=1", "layout"},
        {"gdn:layout=flat | seqs=513", "seqs=513"},
        {"gdn:layout=flat | lens=2", "lens: 2..2"},
        {"gdn:layout=flat,t=2 | lens=1", "lens: 1..1"},
        {"gdn:layout=flat,t=2,varlen=1 | lens=3", "lens: 3..3"},
        {"gdn:layout=flat,t=2,varlen=1 | lens=1,2 seqs=3", "2 terms for seqs=3"},
        {"gdn:layout=flat,save=replay,ring=2 | ring=3", "ring: 3..3"},
        {"gdn:layout=flat | ring=1", "ring: 1..1"},
        {"gdn:layout=flat | seqs=1 idxstep=0", "idxstep=0"},
        {"gdn:layout=flat | seqs=1 xstd=0", "positive"},
        {"gdn:layout=flat | seqs=1 hkv=2", "no such key"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        static kgen__case c;
        kgen_error err = {KGEN_OK, ""};
        if (kgen__case_parse(&c, bad[i][0], &err) == KGEN_OK) fail_msg("accepted: %s", bad[i][0]);
        if (!strstr(err.text, bad[i][1])) fail_msg("%s: %s", bad[i][0], err.text);
    }
}

static void the_file_of_cases(void **state) {
    (void)state;
    kgen__case *cases;
    size_t count;
    kgen_error err = {KGEN_OK, ""};
    static char line[KGEN__CASE_LINE_MAX], other[KGEN__CASE_LINE_MAX];
    if (kgen__cases_load(&cases, &count, CASES, &err) != KGEN_OK) fail_msg("%s", err.text);
    assert_true(count >= 100);
    for (size_t i = 0; i < count; i++) {
        same_after_print(&cases[i]);
        kgen__case_print(line, &cases[i]);
        for (size_t j = 0; j < i; j++) {
            kgen__case_print(other, &cases[j]);
            if (strcmp(line, other) == 0) fail_msg("twice: %s", line);
        }
    }
    free(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors),           cmocka_unit_test(layouts_are_permutations),
        cmocka_unit_test(drafts_are_single_steps), cmocka_unit_test(rings_are_single_steps),
        cmocka_unit_test(trees_are_chains),        cmocka_unit_test(states_do_not_drift),
        cmocka_unit_test(mistakes_are_found),      cmocka_unit_test(writes_are_watched),
        cmocka_unit_test(padding_is_zeros),        cmocka_unit_test(answers_are_finite_and_tight),
        cmocka_unit_test(cases_round_trip),        cmocka_unit_test(bad_cases_are_refused),
        cmocka_unit_test(the_file_of_cases),
    };
    run_seed = test_seed();
    kgen__rng_seed(&rng, run_seed, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
