"""Guidance: a template with gaps that the model fills."""

import json

import guidance
from given import CITY_ASKED, City


def lm(at, model):
    return guidance.models.OpenAI(model, base_url=at.v1, api_key=at.key, echo=False)


def filled(at, model, prompt, gap):
    made = lm(at, model)
    with guidance.user():
        made += prompt
    with guidance.assistant():
        made += gap
    return made["answer"]


def ask(at, model, stream):
    at.heard(filled(at, model, at.prompt, guidance.gen("answer")))
    return {}


def structured(at, model):
    return json.loads(filled(at, model, CITY_ASKED, guidance.json("answer", schema=City)))
