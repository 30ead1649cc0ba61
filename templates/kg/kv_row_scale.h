// scale=row: a workgroup has some rows with all their heads. First the scales,
// into LDS; then the rows, out of the caches this time.
namespace kg {

// V may have X - 1 rows more: a whole group may begin in the last row.
constexpr int GROUP_ROWS = PACKED ? X : 4;
constexpr int V_SCALES = PACKED ? 2 * X - 1 : GROUP_ROWS;
constexpr int LDS_USED = SCALE == SCALE_ROW ? (GROUP_ROWS + V_SCALES) * 4 : 16;

template <int SIDE> KG_DEV void scale_row(args_t a, int row, float *out, bool writes) {
    typedef row_chunks<SIDE> c;
    side_t side = a.side[SIDE];
    piece_t<SIDE> p;
    float top = 0;
    p.row = row;
    find_slot(p, a, a.rows);
    int count = p.slot < 0 ? 0 : a.heads * c::lanes;
    KG_LOOP for (int i = (int)lane_id(); i < count; i += WAVE) {
        p.head = i / c::lanes;
        p.first = i % c::lanes;
        load_piece(p, a, a.rows);
        rotate_piece(p, a);
        top = fmax(top, piece_amax(p));
    }
    float scale = scale_for(max_lanes<1, WAVE>(top));
    if (lane_id() == 0) *out = scale;
    if (p.slot < 0 || !writes) return;
    place_t at = place_of(a, p.slot);
    int entries = side.scale_head != 0 ? a.heads : 1;
    for (int head = (int)lane_id(); head < entries; head += WAVE) write_scale(side, at, head, scale);
}

template <int SIDE>
KG_DEV void write_block(args_t a, int first_row, int end_row, const float *row_scale) {
    typedef row_chunks<SIDE> c;
    u32 places = (u32)(GROUP_ROWS * c::lanes) * (u32)a.heads; // whole blocks of rows
    KG_LOOP for (u32 i = 0; i < places; i += THREADS) {
        piece_t<SIDE> p;
        u32 place = i + thread_id();
        locate(p, a, place, first_row, place < places ? end_row : 0);
        load_piece(p, a, place < places ? end_row : 0);
        store_piece(p, a, row_scale, first_row);
    }
}

KG_DEV void write_scaled_rows(args_t a, u32 group, float *lds) {
    int first_row = (int)group * GROUP_ROWS, wave = (int)wave_id();
    int end_row = first_row + GROUP_ROWS < a.rows ? first_row + GROUP_ROWS : a.rows;
    float *v_scales = lds + GROUP_ROWS;
    KG_LOOP for (int n = wave; n < GROUP_ROWS + V_SCALES; n += GROUP_WAVES) {
        int v = n - GROUP_ROWS;
        if (v < 0) scale_row<0>(a, first_row + n, lds + n, true);
        else scale_row<1>(a, first_row + v, v_scales + v, v < GROUP_ROWS);
    }
    barrier();
    write_block<0>(reread(a), first_row, end_row, lds); // all arguments at once are too many
    if constexpr (PACKED) {
        int slices = slices_of(a);
        KG_LOOP for (int n = wave; n < slices; n += GROUP_WAVES)
            write_tokens(reread(a), first_row, n, v_scales);
    } else {
        write_block<1>(reread(a), first_row, end_row, v_scales);
    }
}

}
