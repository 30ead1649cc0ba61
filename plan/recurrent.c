/* What a slot of the recurrent layers holds that no kernel here runs: it
 * decides the page of the attention layers beside them. */
#include "model_types.h"

/* One value under the names that classes give it; "auto" is worked out. */
static kgen_status read_named(const kgen__config *c, const char *const *keys, int64_t high,
                              int64_t *out) {
    for (; *keys; keys++)
        if (!json_is_string(kgen__config_field(c, *keys)))
            KGEN_TRY(kgen__config_int(c, *keys, 0, high, out));
    return KGEN_OK;
}

static kgen_status read_mamba(kgen__reading *r) {
    kgen__recurrent *s = &r->model->recurrent;
    int64_t expand = 2, hidden = 0;
    const struct {
        const char *keys[4];
        int64_t high, *out;
    } rows[] = {
        {{"mamba_num_heads", "mamba_n_heads", "n_mamba_heads"}, 4096, &s->heads},
        {{"mamba_head_dim", "mamba_d_head", "mamba_headdim"}, 4096, &s->head_dim},
        {{"n_groups", "mamba_n_groups", "mamba_ngroups"}, KGEN__HEADS_MAX, &s->groups},
        {{"ssm_state_size", "mamba_d_state"}, 65536, &s->state},
        {{"conv_kernel", "mamba_d_conv"}, 64, &s->conv},
        {{"expand", "mamba_expand"}, 64, &expand},
        {{"hidden_size"}, KGEN__DIM_MAX, &hidden},
        {{"mamba_d_ssm"}, KGEN__DIM_MAX, &s->inner},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        KGEN_TRY(read_named(r->config, rows[i].keys, rows[i].high, rows[i].out));
    if (!s->inner) s->inner = s->heads && s->head_dim ? s->heads * s->head_dim : expand * hidden;
    return KGEN_OK;
}

kgen_status kgen__recurrent_read(kgen__reading *r) {
    kgen__recurrent *s = &r->model->recurrent;
    int mamba = r->type->linear == KGEN__MIX_MAMBA;
    for (int64_t i = 0; i < r->model->count; i++) mamba |= r->model->layer[i].mamba;
    if (mamba) KGEN_TRY(read_mamba(r));
    s->lightning_heads = r->common.heads;
    s->lightning_dim = r->common.head_dim;
    KGEN_TRY(kgen__config_int(r->config, "conv_L_cache", 1, 64, &s->conv_width));
    return kgen__config_int(r->config, "hidden_size", 1, KGEN__DIM_MAX, &s->conv_channels);
}
