/* One row for each model_type: how its layers are told apart, which keys and
 * rules its class has, and what a config leaves to the class. Private to plan. */
#ifndef KGEN_PLAN_MODEL_TYPES_H
#define KGEN_PLAN_MODEL_TYPES_H

#include "config.h"
#include "model.h"

typedef struct kgen__model_type kgen__model_type;

/* What kgen__model_read has so far: a layer of the common kind, and the fields
 * that rules share. */
typedef struct kgen__reading {
    const kgen__config *config;
    const kgen__model_type *type;
    kgen__model *model;
    kgen__layer common; /* full attention */
    int64_t window;     /* of sliding layers, 0: the config has none */
    int dense;
    double yarn; /* of latent attention; 0: none */
} kgen__reading;

/* Fills model->layer, which begin as copies of `common`. */
typedef kgen_status (*kgen__layer_rule)(kgen__reading *r);

typedef enum kgen__scale_rule {
    KGEN__SCALE_DIM = 0,    /* head_dim ^ -0.5 */
    KGEN__SCALE_QUERY,      /* query_pre_attn_scalar ^ -0.5 */
    KGEN__SCALE_MULTIPLIER, /* attention_multiplier */
    KGEN__SCALE_ONE,
    KGEN__SCALE_GPT2,  /* scale_attn_weights, scale_attn_by_inverse_layer_idx */
    KGEN__SCALE_JAIS,  /* 1 / head_dim with mup_scale_qk_dot_by_d */
    KGEN__SCALE_PARTS, /* attn_config.softmax_scale */
} kgen__scale_rule;

typedef enum kgen__kv_rule {
    KGEN__KV_KEY = 0, /* a key, else the class's default, else one a query head */
    KGEN__KV_FALCON,  /* multi_query counts unless new_decoder_architecture */
    KGEN__KV_MULTI_QUERY,
    KGEN__KV_GROUP, /* multi_query_group_num counts with multi_query_attention */
    KGEN__KV_PARTS, /* attn_config.kv_n_heads */
} kgen__kv_rule;

typedef enum kgen__alibi_rule {
    KGEN__ALIBI_KEY = 0, /* `alibi`, or position_embedding_type=alibi */
    KGEN__ALIBI_ALWAYS,
    KGEN__ALIBI_BAICHUAN, /* all but the 4096 wide model */
    KGEN__ALIBI_PARTS,    /* attn_config.alibi, which is true where it is not given */
} kgen__alibi_rule;

struct kgen__model_type {
    const char *type; /* without "_text" */
    /* the class's defaults: nested configs leave them out. 0: none */
    int layers, heads, kv_heads, hidden, head_dim, window;
    kgen__layer_rule rule;
    const char *period_key; /* of a rule by period */
    int period;
    int opt_in;             /* sliding_window counts only with use_sliding_window */
    kgen__mechanism linear; /* what its linear_attention is; 0: it has none */
    kgen__mechanism common; /* of its attention layers; 0: attention */
    kgen__scale_rule scale;
    double query_scalar, multiplier, softcap;
    kgen__kv_rule kv;
    kgen__alibi_rule alibi;
    int sinks, multi_query;
    int global_head_dim; /* of full layers, 0: as the rest */
    kgen_layout rows;    /* of linear layers' in-projection, 0: not DeltaNet */
};

/* NULL: not known. */
const kgen__model_type *kgen__model_type_find(const char *model_type);

/* model_type of a language part that names none, after the whole's; NULL: not known. */
const char *kgen__model_type_inner(const char *outer);

/* What it is, when no kernel here could serve it; NULL: not among those. */
const char *kgen__model_type_refused(const char *model_type);

/* layer_rules.c */
kgen_status kgen__layers_read(kgen__reading *r);
kgen_status kgen__rule_full(kgen__reading *r);    /* a window is refused */
kgen_status kgen__rule_windows(kgen__reading *r); /* all slide, where there is a window */
kgen_status kgen__rule_listed(kgen__reading *r);  /* the config must list them */
kgen_status kgen__rule_period(kgen__reading *r);  /* full: (i + 1) % period == 0 */
kgen_status kgen__rule_first(kgen__reading *r);   /* full: i % period == 0 */
kgen_status kgen__rule_qwen(kgen__reading *r);    /* sliding from max_window_layers on */
kgen_status kgen__rule_qwen2_moe(kgen__reading *r);
kgen_status kgen__rule_no_rope(kgen__reading *r);
kgen_status kgen__rule_kda(kgen__reading *r);
kgen_status kgen__rule_offset(kgen__reading *r);  /* attn_layer_period, attn_layer_offset */
kgen_status kgen__rule_indices(kgen__reading *r); /* attn_layer_indices, full_attn_idxs */
kgen_status kgen__rule_mimo(kgen__reading *r);    /* hybrid_layer_pattern, swa_* */
kgen_status kgen__rule_blocks(kgen__reading *r);  /* block_configs */
kgen_status kgen__rule_cross(kgen__reading *r);   /* cross_attention_layers */
kgen_status kgen__rule_beside(kgen__reading *r);  /* Mamba beside every layer */
kgen_status kgen__rule_neo(kgen__reading *r);     /* attention_layers, window_size */
kgen_status kgen__rule_step(kgen__reading *r);    /* attention_other_setting */

/* recurrent.c: what a slot of the recurrent layers holds. */
kgen_status kgen__recurrent_read(kgen__reading *r);

/* unread.c: a field that nobody asked for and that spells out a mechanism is
 * KGEN_E_UNSUPPORTED; with r->dense it is noted in model->assumed. */
kgen_status kgen__unread_check(kgen__reading *r);

#endif
