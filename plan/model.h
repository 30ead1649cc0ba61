/* What a model's config.json says: a list of layers that names no engine and no
 * kernel. Private to plan. */
#ifndef KGEN_PLAN_MODEL_H
#define KGEN_PLAN_MODEL_H

#include <kgen/plan.h>

enum { KGEN__LAYERS_MAX = 1024, KGEN__HEADS_MAX = 1024, KGEN__DIM_MAX = 1 << 20 };

/* What mixes the tokens of a layer. */
typedef enum kgen__mechanism {
    KGEN__MIX_ATTENTION, /* softmax over all keys, or those of a sliding window */
    KGEN__MIX_DELTA,     /* Gated DeltaNet, Kimi Delta Attention */
    KGEN__MIX_MLA,
    KGEN__MIX_CHUNKED,
    KGEN__MIX_SPARSE, /* keys that an indexer or a compressor picks */
    KGEN__MIX_CROSS,
    KGEN__MIX_MAMBA,
    KGEN__MIX_LIGHTNING,
    KGEN__MIX_SHORT_CONV,
    KGEN__MIX_NONE, /* only a feed-forward part */
    KGEN__MIX_COUNT
} kgen__mechanism;

/* One layer. Heads of the whole model, before tensor parallelism. */
typedef struct kgen__layer {
    kgen__mechanism mix;
    int mamba;  /* a Mamba block beside its attention */
    int shared; /* reads the cache of an earlier layer and writes none */
    int alibi, sinks;
    int64_t heads, kv_heads, head_dim, v_dim;
    int64_t window;        /* tokens, the query included; 0: all */
    double scale, softcap; /* softcap 0: none */
} kgen__layer;

/* Linear layers: Gated DeltaNet and KDA. 0: the config says nothing. */
typedef struct kgen__delta {
    int64_t k_heads, v_heads, k_dim, v_dim, conv;
    kgen_layout layout; /* of the in-projection's rows */
    kgen_dtype state;   /* of the recurrent state; 0: the engine's choice */
    kgen_gdn_gate gate;
    double bound;    /* kda_bound: the lower bound of the log decay */
    double norm_eps; /* of the gated norm */
    int sigmoid;     /* 1: the norm's gate is sigmoid(z), else z sigmoid(z) */
    char act[32];    /* activation after the convolution */
} kgen__delta;

/* Recurrent layers that no kernel here runs: only what a slot of theirs holds,
 * which decides the page of the attention layers beside them. */
typedef struct kgen__recurrent {
    int64_t heads, head_dim, groups, state, conv; /* Mamba2; heads 0: Mamba */
    int64_t inner;                                /* channels */
    kgen_dtype dtype;                             /* of the state; 0: the model's */
    int64_t lightning_heads, lightning_dim;
    int64_t conv_channels, conv_width; /* short convolutions */
} kgen__recurrent;

typedef struct kgen__model {
    char type[64];
    kgen_dtype dtype;
    int64_t count; /* of layers */
    kgen__layer layer[KGEN__LAYERS_MAX];
    int64_t topk; /* latent rows that a query sees, which an indexer picks; 0: all */
    int64_t index_heads, index_dim; /* of the indexer; 0: not said */
    int64_t kv_lora_rank, rope_dim; /* of a cached row of latent attention; 0: not said */
    int64_t chunk;                  /* for messages */
    kgen__delta delta;
    kgen__recurrent recurrent;
    char assumed[512]; /* --assume dense: what it passed over, else "" */
} kgen__model;

/* KGEN_E_CONFIG names the field, its value and the bound; KGEN_E_UNSUPPORTED a
 * model_type or a field that this version does not know. dense: those are
 * passed over, and all layers are plain causal attention. */
kgen_status kgen__model_read(kgen__model *out, const char *json, size_t size, int dense,
                             kgen_error *err);

int64_t kgen__model_layers(const kgen__model *m, kgen__mechanism mix);
/* 1: there are layers of latent attention, and the config says what a cached row is. */
int kgen__latent_is_known(const kgen__model *m);

#endif
