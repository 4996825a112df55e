"""Stands in for the package `sglang-kernel`, whose wheels hold GPU code only. Names can be imported; calling one of
them fails, but for the one kernel that a dense model with `torch_native` attention needs on the CPU."""


def assign_req_to_token_pool_cpu(requests, table, starts, ends, places, *rest):
    """`table[request, start:end]` gets the next `end - start` cache places."""
    used = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[request, start:end] = places[used : used + end - start].to(table.dtype)
        used += end - start


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **more):
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU form here")

    return missing
