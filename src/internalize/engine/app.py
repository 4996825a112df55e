"""The local engine behind SGLang's routes (FastAPI).

Invariant: a route either does what SGLang's does or refuses with a reason; a reply to `/generate` holds
exactly what the scheduler gave, so HTTP adds no rounding (JSON keeps every bit of a float).

Errors: 400 the request, 503 the queue is full or the engine has stopped (nothing was started), 500 the model.
The protocol has no keys: bind it to loopback or to a private network.
"""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from internalize.engine import wire
from internalize.engine.batch import Call
from internalize.engine.folder import ModelFolder
from internalize.engine.protocol import Completion, SamplingParams
from internalize.engine.scheduler import BusyError, Scheduler, StoppedError
from internalize.errors import UserError
from internalize.seeds import derive

DISCONNECT_SECONDS = 0.25
"""How often a waiting call looks whether its client is still there."""


def create_app(scheduler: Scheduler, model: ModelFolder) -> FastAPI:
    """The routes over a started scheduler; `model` is the folder that its weights came from."""
    app = FastAPI(title="internalize engine", openapi_url=None)
    served = {"folder": model}  # moves with the weights

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        lines = [f"{'.'.join(map(str, e['loc'][1:])) or 'body'}: {e['msg']}" for e in error.errors()]
        return _error(400, "; ".join(lines))

    @app.exception_handler(UserError)
    async def refused(request: Request, error: UserError) -> JSONResponse:
        return _error(400, str(error))

    @app.exception_handler(BusyError)
    @app.exception_handler(StoppedError)
    async def unavailable(request: Request, error: Exception) -> JSONResponse:
        return _error(503, str(error))

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if scheduler.alive else 503)

    @app.get("/health_generate")
    async def health_generate() -> Response:
        """Generates a token, unless calls are running or none may: then it is enough that there is a worker."""
        if scheduler.alive and not scheduler.paused and not any(scheduler.live_calls):
            call = Call(_new_rid("health"), [0], SamplingParams(temperature=0.0, max_new_tokens=1), seed=0)
            await asyncio.wrap_future(scheduler.submit(call))
        return await health()

    @app.get("/v1/loads")
    async def loads() -> dict[str, Any]:
        waiting, running = scheduler.live_calls
        return {"loads": [{"num_waiting_reqs": waiting, "num_running_reqs": running}]}

    @app.get("/model_info")
    async def model_info() -> dict[str, Any]:
        folder, engine = served["folder"], scheduler.engine
        return {
            "model_path": str(folder.path),
            "tokenizer_path": str(model.path),
            "is_generation": True,
            "weight_version": engine.weight_version,
            "model_type": engine.config.get("model_type"),
            "architectures": engine.config.get("architectures"),
            "internalize": {"slots": engine.slots, "max_len": engine.max_len},
        }

    @app.post("/generate", response_model=None)
    async def generate(body: wire.GenerateRequest, request: Request) -> JSONResponse:
        rid = body.rid or _new_rid("call")
        seed = body.sampling_params.sampling_seed
        call = Call(
            rid=rid,
            prompt=body.input_ids,
            sampling=body.sampling_params.params(model.eos_ids),
            seed=derive(rid) if seed is None else wire.from_signed(seed),
            session=f"s:{body.session_id}" if body.session_id else "",
        )
        future = scheduler.submit(call)
        try:
            completion = await _while_connected(future, request, scheduler, rid)
        except UserError as error:
            if "rid" in error.where:
                raise
            return _error(500, str(error))  # the request was fine, the model is not
        prompt: list[list[Any]] | None = None
        start = body.logprob_start_len
        if body.return_logprob and start >= 0:
            scores: list[float | None] = [*await asyncio.wrap_future(scheduler.score(body.input_ids))]
            scores[0] = None
            prompt = [[score, token, None] for score, token in zip(scores[start:], body.input_ids[start:], strict=True)]
        return JSONResponse(wire.reply_of(completion, rid, len(body.input_ids), body.return_logprob, prompt))

    @app.api_route("/release_memory_occupation", methods=["GET", "POST"])
    async def release_memory_occupation(body: wire.MemoryRequest) -> None:
        await asyncio.wrap_future(scheduler.offload())

    @app.api_route("/resume_memory_occupation", methods=["GET", "POST"])
    async def resume_memory_occupation(body: wire.MemoryRequest) -> None:
        await asyncio.wrap_future(scheduler.onload())

    @app.post("/abort_request")
    async def abort_request(body: wire.AbortRequest) -> Response:
        await asyncio.wrap_future(scheduler.abort(None if body.abort_all else body.rid))
        return Response()

    @app.post("/pause_generation")
    async def pause_generation(body: wire.PauseRequest) -> dict[str, str]:
        count = await asyncio.wrap_future(scheduler.pause())
        return {"status": "ok", "message": f"Generation paused, {count} calls aborted."}

    @app.post("/continue_generation")
    async def continue_generation(body: wire.ContinueRequest) -> dict[str, str]:
        await asyncio.wrap_future(scheduler.resume())
        return {"status": "ok", "message": "Generation continued."}

    @app.api_route("/flush_cache", methods=["GET", "POST"])
    async def flush_cache() -> PlainTextResponse:
        if await asyncio.wrap_future(scheduler.flush()):
            return PlainTextResponse("Cache flushed.\n")
        return PlainTextResponse("Not flushed: calls are running.\n", status_code=400)

    @app.post("/update_weights_from_disk")
    async def update_weights_from_disk(body: wire.UpdateWeightsRequest) -> JSONResponse:
        folder = ModelFolder(Path(body.model_path))
        loading = scheduler.load(folder.state, lambda: body.weight_version or folder.version(), body.abort_all_requests)
        try:
            version = await asyncio.wrap_future(loading)
        except UserError as error:
            return JSONResponse({"success": False, "message": str(error), "num_paused_requests": 0}, 400)
        served["folder"] = folder
        message = f"Weights of {folder.path.name} loaded as version {version}."
        return JSONResponse({"success": True, "message": message, "num_paused_requests": 0})

    return app


async def _while_connected(future: Future[Completion], request: Request, scheduler: Scheduler, rid: str) -> Completion:
    """The call's completion; aborts the call when its client goes away."""
    waiting = asyncio.wrap_future(future)
    while not (await asyncio.wait({waiting}, timeout=DISCONNECT_SECONDS))[0]:
        if await request.is_disconnected():
            scheduler.abort(rid)
            break
    return await waiting


def _error(status: int, message: str) -> JSONResponse:
    """SGLang's shape of an error."""
    return JSONResponse({"error": {"message": message}}, status)


def _new_rid(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"
