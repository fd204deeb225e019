"""The models of a server, and the tokenizer of each."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from paceline.server.bridge import Host
from paceline.server.errors import Refusal
from paceline.server.exchange import Json, Route, shelf_of, using
from paceline.server.schema import DetokenizeBody, TokenizeBody

router = APIRouter(route_class=Route)


@router.get("/v1/models")
async def models(request: Request) -> Json:
    """List the models of this server."""
    return {"object": "list", "data": [_shown(host, request) for host in shelf_of(request).hosts]}


@router.get("/v1/models/{name:path}")
async def model(name: str, request: Request) -> Json:
    """Tell of a model of this server."""
    return _shown(shelf_of(request).find(name), request)


def _shown(host: Host, request: Request) -> Json:
    said: Json = {
        "id": host.name,
        "object": "model",
        "created": request.app.state.started,
        "owned_by": "local",
        "loaded": host.is_loaded,
    }
    if host.is_loaded:
        llm = host.loaded
        said |= {
            "max_model_len": llm.context,
            "speculation": {
                "sources": list(llm.setup.drafters),
                "verify": llm.setup.verify,
                "control": llm.setup.control,
                "lossless": llm.setup.lossless,
            },
        }
    return said


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, request: Request) -> Json:
    """Return the token ids of a text, or of messages in the model's template."""
    if (body.prompt is None) == (body.messages is None):
        raise Refusal(400, "give either prompt or messages", param="prompt")
    async with using(request, body.model) as host:
        llm = host.llm
        if body.messages is not None:
            ids = await asyncio.to_thread(llm.encode_chat, [message.plain() for message in body.messages])
        else:
            ids = await asyncio.to_thread(llm.encode, body.prompt or "", special=body.parse_special)
        return {"tokens": ids, "count": len(ids), "max_model_len": llm.context}


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, request: Request) -> Json:
    """Return the text of token ids."""
    async with using(request, body.model) as host:
        return {"prompt": host.llm.tokenizer.decode(body.tokens)}
