"""vLLM's small kernels between the steps, by the names and with the arguments with which it launches them: kernel[grid](...)."""
from __future__ import annotations

from typing import Any

import torch

from .common import Launcher, counted, offered, scatter


@Launcher
def eagle_prepare_inputs_padded_kernel(
        cu_num_draft_tokens_ptr: torch.Tensor, valid_sampled_tokens_count_ptr: torch.Tensor, query_start_loc_gpu_ptr: torch.Tensor,
        token_indices_to_sample_ptr: torch.Tensor, num_rejected_tokens_gpu_ptr: torch.Tensor, num_reqs: int) -> None:
    """Where each request samples, and how many of its drafts were refused."""
    scatter("padded_inputs", draft_ends=cu_num_draft_tokens_ptr[:num_reqs], indptr=query_start_loc_gpu_ptr[:num_reqs + 1],
            accepted=valid_sampled_tokens_count_ptr[:num_reqs], sample_index=token_indices_to_sample_ptr[:num_reqs],
            counts=num_rejected_tokens_gpu_ptr[:num_reqs])


@Launcher
def eagle_prepare_next_token_padded_kernel(
        sampled_token_ids_ptr: torch.Tensor, discard_request_mask_ptr: torch.Tensor, backup_next_token_ids_ptr: torch.Tensor,
        next_token_ids_ptr: torch.Tensor, valid_sampled_tokens_count_ptr: torch.Tensor, vocab_size: int,
        num_sampled_tokens_per_req: int, num_reqs: int, stride_sampled_token_ids: int, BLOCK_SIZE_TOKENS: int = 0) -> None:
    """The last token of each request that stays, else its backup, and how many stay. The stride is the tensor's own."""
    scatter("next_token", tokens_in=sampled_token_ids_ptr[:num_reqs, :num_sampled_tokens_per_req],
            discarded=discard_request_mask_ptr[:num_reqs].view(torch.uint8), backup=backup_next_token_ids_ptr[:num_reqs],
            next=next_token_ids_ptr[:num_reqs], counts=valid_sampled_tokens_count_ptr[:num_reqs],
            tokens=num_sampled_tokens_per_req, vocab=vocab_size)


def eagle_step_update_slot_mapping_and_metadata(
        positions_1d: torch.Tensor, block_table_tensor: torch.Tensor, seq_lens: torch.Tensor, block_size: int,
        max_model_len: int, out_clamped_positions: torch.Tensor, out_slot_mapping: torch.Tensor,
        input_batch_size: int | None = None) -> None:
    """seq_lens is written in place; slots of padding are -1."""
    count = positions_1d.shape[0]
    scatter("eagle_step", f",page={block_size}", lens=seq_lens[:count], positions=positions_1d,
            block_table=block_table_tensor, seq_lens=seq_lens[:count], positions_out=out_clamped_positions[:count],
            locs=out_slot_mapping[:count], max_len=max_model_len)
    out_slot_mapping[count:count if input_batch_size is None else input_batch_size].fill_(-1)


@Launcher
def eagle_step_slot_mapping_metadata_kernel(
        positions_ptr: torch.Tensor, block_table_ptr: torch.Tensor, block_table_stride: int, seq_lens_ptr: torch.Tensor,
        out_clamped_positions_ptr: torch.Tensor, out_slot_mapping_ptr: torch.Tensor, block_size: int, max_model_len: int,
        n_blocks_per_req: int, PAD_ID: int, batch_size: int) -> None:
    """The same; out_slot_mapping has as many rows as the grid."""
    offered(PAD_ID=None if PAD_ID == -1 else PAD_ID)
    eagle_step_update_slot_mapping_and_metadata(
        positions_ptr[:batch_size], block_table_ptr[:batch_size, :n_blocks_per_req], seq_lens_ptr, block_size, max_model_len,
        out_clamped_positions_ptr, out_slot_mapping_ptr, out_slot_mapping_ptr.shape[0])


def compute_slot_mapping(
        num_reqs: int, num_tokens: int, max_num_tokens: int, query_start_loc: torch.Tensor, positions: torch.Tensor,
        block_table: torch.Tensor, block_table_stride: int, slot_mapping: torch.Tensor, kv_cache_block_size: int,
        total_cp_world_size: int = 1, total_cp_rank: int = 0, cp_kv_cache_interleave_size: int = 1) -> None:
    """Of vllm.v1.worker.block_table (its _COMPUTE_SLOT_MAPPING_KERNEL): the slot of each token, -1 behind the last, and of
    tokens of another rank."""
    scatter("slot_mapping", f",page={kv_cache_block_size}", indptr=query_start_loc[:num_reqs + 1], positions=positions[:num_tokens],
            block_table=block_table[:num_reqs], locs=slot_mapping[:num_tokens], cp_size=total_cp_world_size,
            cp_rank=total_cp_rank, cp_interleave=cp_kv_cache_interleave_size)
    slot_mapping[num_tokens:max_num_tokens].fill_(-1)


@Launcher
def _compute_slot_mapping_kernel(
        num_tokens: int, max_num_tokens: int, query_start_loc_ptr: torch.Tensor, positions_ptr: torch.Tensor,
        block_table_ptr: torch.Tensor, block_table_stride: int, slot_mapping_ptr: torch.Tensor, KV_CACHE_BLOCK_SIZE: int,
        TOTAL_CP_WORLD_SIZE: int = 1, TOTAL_CP_RANK: int = 0, CP_KV_CACHE_INTERLEAVE_SIZE: int = 1, PAD_ID: int = -1,
        BLOCK_SIZE: int = 0) -> None:
    """The same of older versions, as many requests as query_start_loc has."""
    offered(PAD_ID=None if PAD_ID == -1 else PAD_ID)
    compute_slot_mapping(query_start_loc_ptr.shape[0] - 1, num_tokens, max_num_tokens, query_start_loc_ptr, positions_ptr,
                         block_table_ptr, block_table_stride, slot_mapping_ptr, KV_CACHE_BLOCK_SIZE, TOTAL_CP_WORLD_SIZE,
                         TOTAL_CP_RANK, CP_KV_CACHE_INTERLEAVE_SIZE)


@Launcher
def _copy_page_indices_kernel(page_indices: torch.Tensor, block_table: torch.Tensor, block_table_stride: int,
                              cu_num_blocks: torch.Tensor, BLOCK_SIZE: int = 0) -> None:
    """Pages of a table, packed. How many of each request is a launch of torch's."""
    counts = cu_num_blocks[1:] - cu_num_blocks[:-1]
    scatter("kv_indices", lens=counts, requests=counted(counts.device, counts.shape[0]), req_to_token=block_table,
            indptr=cu_num_blocks, indices=page_indices)


def gather_initial_states(state: torch.Tensor, indices: torch.Tensor, has_initial_state: torch.Tensor) -> torch.Tensor:
    """Rows of the state, zeros where there is none yet. Which are read is a launch of torch's."""
    row = state[0].numel()
    if not state[0].is_contiguous():
        raise NotImplementedError(f"state: strides {state.stride()}; rows of bytes are copied, each dense")
    out = torch.empty(indices.shape[0], *state.shape[1:], dtype=state.dtype, device=state.device)
    rows = state.as_strided((state.shape[0], row), (state.stride(0), 1)).view(torch.uint8)
    scatter("gather_rows", f",unit={unit_of(rows)}", row_index=indices.where(has_initial_state, -1), rows_in=rows,
            rows_out=out.view(-1, row).view(torch.uint8))
    return out


@Launcher
def expand_kernel(output_ptr: torch.Tensor, input_ptr: torch.Tensor, cu_num_tokens_ptr: torch.Tensor, replace_from: Any,
                  replace_to: Any, MAX_NUM_TOKENS: int = 0) -> None:
    """A request's value for each of its tokens. What is replaced, and whose a token is, are launches of torch's. Behind the last
    token output_ptr becomes zeros."""
    tokens = counted(output_ptr.device, output_ptr.shape[0])
    whose = torch.searchsorted(cu_num_tokens_ptr, tokens, right=True, out_int32=True)
    values = torch.where(input_ptr == replace_from, replace_to, input_ptr).to(output_ptr.dtype)
    scatter("gather_rows", f",unit={output_ptr.element_size()}", row_index=torch.where(whose < input_ptr.shape[0], whose, -1),
            rows_in=values[:, None].view(torch.uint8), rows_out=output_ptr[:, None].view(torch.uint8))


def expand_batch_to_tokens(x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: Any = 0,
                           replace_to: Any = 0) -> torch.Tensor:
    """Of vllm.v1.sample.rejection_sampler, around expand_kernel."""
    expanded = x.new_empty(num_tokens)
    expand_kernel[(x.shape[0],)](expanded, x, cu_num_tokens, replace_from, replace_to)
    return expanded


def unit_of(rows: torch.Tensor) -> int:
    """The most bytes, up to 16, that its address, its rows and their distance are multiples of."""
    at: Any = rows.data_ptr() | rows.shape[1] | rows.stride(0)
    return min(16, at & -at)
