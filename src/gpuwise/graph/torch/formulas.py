"""The formula of each operator of PyTorch, by name; and the operators that cost nothing."""

from __future__ import annotations

from math import prod

from gpuwise.graph.ops import Kind
from gpuwise.graph.torch import costs
from gpuwise.graph.torch.costs import Call, Cost, Formula, each

__all__ = ["FORMULAS", "FREE", "Call", "Cost", "Formula", "formula_of"]

_NORM_BACK = each(Kind.NORM, 8.0)
_ACT = each(Kind.ACTIVATION, 1.0)
_SMOOTH = each(Kind.ACTIVATION, 8.0)
_COPY = each(Kind.COPY, 0.0)
_SUM = each(Kind.REDUCE, 1.0)
_LOOK_UP = each(Kind.EMBEDDING, 0.0)

_TABLE: tuple[tuple[str, Formula], ...] = (
    ("convolution _convolution", costs.conv),
    ("convolution_backward", costs.conv_backward),
    ("mm _int_mm _scaled_mm _sparse_mm", costs.mm),
    ("addmm _addmm_activation", costs.addmm),
    ("linear", costs.linear),
    ("_grouped_mm", costs.grouped),
    ("bmm baddbmm addbmm", costs.bmm),
    ("mv addmv", costs.mv),
    ("dot vdot", each(Kind.LINEAR, 2.0)),
    (
        """
        _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_cudnn_attention
        _scaled_dot_product_fused_attention_overrideable
        """,
        costs.attention,
    ),
    (
        """
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_fused_attention_overrideable_backward
        """,
        costs.attention_backward,
    ),
    (
        """
        native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm
        _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update miopen_batch_norm
        """,
        costs.norm(lambda call: call.inputs[0][1]),
    ),
    # (input, normalized_shape, …) and (input, weight, bias, N, C, HxW, groups, eps)
    ("native_layer_norm _fused_rms_norm", costs.norm(lambda call: prod(call.args[1]))),
    ("native_group_norm", costs.norm(lambda call: call.args[4] // call.args[6])),
    ("_weight_norm_interface renorm", each(Kind.NORM, 5.0)),
    (
        """
        native_batch_norm_backward batch_norm_backward native_layer_norm_backward native_group_norm_backward
        _fused_rms_norm_backward cudnn_batch_norm_backward _weight_norm_interface_backward
        """,
        _NORM_BACK,
    ),
    (
        """
        relu threshold_backward hardtanh hardtanh_backward leaky_relu
        leaky_relu_backward clamp_min _prelu_kernel _prelu_kernel_backward
        """,
        _ACT,
    ),
    (
        """
        gelu gelu_backward silu silu_backward sigmoid sigmoid_backward tanh tanh_backward
        hardswish hardswish_backward hardsigmoid hardsigmoid_backward elu
        elu_backward mish mish_backward softplus softplus_backward glu glu_backward log_sigmoid_forward
        log_sigmoid_backward
        """,
        _SMOOTH,
    ),
    ("_softmax _safe_softmax", each(Kind.SOFTMAX, 5.0)),
    ("_softmax_backward_data", each(Kind.SOFTMAX, 4.0)),
    ("_log_softmax", each(Kind.LOSS, 5.0)),
    (
        """
        _log_softmax_backward_data nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
        mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward binary_cross_entropy
        binary_cross_entropy_backward binary_cross_entropy_with_logits _ctc_loss _ctc_loss_backward huber_loss
        huber_loss_backward soft_margin_loss soft_margin_loss_backward multi_margin_loss
        multi_margin_loss_backward multilabel_margin_loss_forward multilabel_margin_loss_backward
        """,
        each(Kind.LOSS, 4.0),
    ),
    ("avg_pool1d", costs.pool(1)),
    ("max_pool2d_with_indices avg_pool2d fractional_max_pool2d", costs.pool(2)),
    ("max_pool3d_with_indices avg_pool3d fractional_max_pool3d", costs.pool(3)),
    (
        """
        max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward
        avg_pool3d_backward _adaptive_avg_pool2d_backward adaptive_max_pool2d_backward
        _adaptive_avg_pool3d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward
        fractional_max_pool3d_backward max_unpool2d max_unpool3d
        """,
        each(Kind.POOL, 1.0),
    ),
    ("_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d", costs.adaptive_pool),
    (
        """
        embedding embedding_dense_backward _embedding_bag _embedding_bag_forward_only
        _embedding_bag_dense_backward index_select index gather index_put
        scatter_add scatter index_add _unsafe_index _unsafe_index_put
        take_along_dim masked_select take put scatter_reduce index_reduce index_copy masked_scatter
        _embedding_bag_backward _embedding_bag_per_sample_weights_backward _index_put_impl index_fill
        segment_reduce _segment_reduce_backward
        """,
        _LOOK_UP,
    ),
    (
        """
        sum amax amin max min var var_mean std std_mean argmax argmin logsumexp cumsum prod norm any all
        topk sort cumprod nansum aminmax median kthvalue mode cummax cummin logcumsumexp count_nonzero
        linalg_vector_norm searchsorted bucketize
        """,
        _SUM,
    ),
    ("mean", costs.mean),
    ("_fft_r2c _fft_c2r _fft_c2c", costs.fourier),
    (
        """
        clone copy _to_copy cat stack constant_pad_nd roll flip repeat fill slice_backward
        select_backward slice_scatter select_scatter unfold_backward im2col col2im pixel_shuffle
        pixel_unshuffle contiguous _reshape_copy new_zeros zeros zeros_like ones ones_like full full_like
        new_ones new_full arange tril triu reflection_pad2d channel_shuffle native_channel_shuffle
        as_strided_scatter replication_pad2d reflection_pad2d_backward scalar_tensor linspace eye lift_fresh zero
        reflection_pad1d reflection_pad3d replication_pad1d replication_pad3d reflection_pad1d_backward
        reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward repeat_interleave rot90
        replication_pad3d_backward diag_embed diagonal_scatter diagonal_backward tril_indices triu_indices
        _pad_packed_sequence logspace complex polar view_as_real_copy new_full expand_copy resize split_copy
        split_with_sizes_copy _chunk_cat
        """,
        _COPY,
    ),
    (
        """
        upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d _upsample_bicubic2d_aa
        upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d_backward grid_sampler_2d
        grid_sampler_2d_backward _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward grid_sampler_3d
        _upsample_bicubic2d_aa_backward grid_sampler_3d_backward upsample_nearest1d upsample_nearest1d_backward
        upsample_nearest3d upsample_nearest3d_backward upsample_linear1d upsample_linear1d_backward
        upsample_trilinear3d upsample_trilinear3d_backward _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_nearest_exact3d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward
        _upsample_nearest_exact3d_backward affine_grid_generator
        """,
        each(Kind.ELEMENTWISE, 8.0),
    ),
    (
        """
        native_dropout native_dropout_backward bernoulli rand rand_like randn randn_like randint
        dropout where masked_fill lerp addcmul addcdiv randperm normal uniform exponential random
        multinomial cross linalg_cross rrelu_with_noise rrelu_with_noise_backward geometric cauchy log_normal
        """,
        each(Kind.ELEMENTWISE, 1.0),
    ),
)
FORMULAS: dict[str, Formula] = {name: formula for names, formula in _TABLE for name in names.split()}

_FREE = """
    view _unsafe_view t transpose permute expand slice select unsqueeze squeeze detach alias as_strided
    unbind split split_with_sizes unsafe_split unsafe_split_with_sizes
    unfold diagonal view_as_real chunk movedim view_as_complex reshape flatten
    empty empty_strided new_empty new_empty_strided numel size is_same_size device sym_size sym_numel
    sym_stride sym_storage_offset _local_scalar_dense real _assert_async _assert_tensor_metadata
    lift_fresh_copy _reshape_alias swapaxes conj _conj item _has_compatible_shallow_copy_type resolve_conj
    resolve_neg imag record_stream set_ _version stride storage_offset dim layout is_contiguous equal
"""
FREE = frozenset(_FREE.split()) | {"empty_like"}
"""Operators that only view memory in another way, or query it: nothing is launched."""


def formula_of(name: str) -> Formula | None:
    """The formula of an operator; an in-place one costs what the other does."""
    return FORMULAS.get(name) or FORMULAS.get(name.rstrip("_"))
