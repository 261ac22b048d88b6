"""DSPy: its model, and a signature."""

import dspy


def lm(at, model):
    return dspy.LM(f"openai/{model}", api_base=at.v1, api_key=at.key, cache=False, num_retries=0)


def ask(at, model, stream):
    """Its model without a signature: a program of DSPy wants an answer in DSPy's own form."""
    with dspy.context(lm=lm(at, model)):
        said = dspy.settings.lm(at.prompt)[0]
        thought = said if isinstance(said, dict) else {"text": said}
        at.heard(thought["text"])
        counts = dspy.settings.lm.history[-1]["usage"]
        usage = [counts["prompt_tokens"], counts["completion_tokens"]]
        return {"usage": usage, "reasoning": thought.get("reasoning_content", "")}


def structured(at, model):
    class Described(dspy.Signature):
        """Describe a city."""

        question: str = dspy.InputField()
        city: str = dspy.OutputField()
        inhabitants: int = dspy.OutputField()

    with dspy.context(lm=lm(at, model), adapter=dspy.JSONAdapter()):
        found = dspy.Predict(Described)(question="A city.")
        return {"city": found.city, "inhabitants": found.inhabitants}
