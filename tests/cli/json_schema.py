"""Validator for the subset of JSON Schema that grammar/attn.schema.json uses."""
import re

TYPES = {"object": dict, "array": list, "string": str, "number": (int, float), "boolean": bool,
         "null": type(None)}
KNOWN = {"$schema", "title", "description", "$defs", "$ref", "type", "enum", "pattern", "required",
         "properties", "additionalProperties", "items", "minItems", "maxItems", "anyOf", "oneOf"}


def mistakes(value, schema, root, place="$"):
    """Yields the places where the value violates the schema, with the reason."""
    unknown = set(schema) - KNOWN
    if unknown:
        raise ValueError(f"unsupported schema keywords: {unknown}")
    if "$ref" in schema:
        yield from mistakes(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, place)
    if "type" in schema:
        is_number = isinstance(value, TYPES["number"]) and not isinstance(value, bool)
        fits = is_number if schema["type"] == "number" else isinstance(value, TYPES[schema["type"]])
        if not fits:
            yield f"{place}: not of type {schema['type']}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: not one of {schema['enum']}"
    for word, most in (("anyOf", None), ("oneOf", 1)):
        if word in schema:
            # The first mistake of an alternative is enough: alternatives nest, so listing all is slow.
            fitting = sum(next(mistakes(value, one, root, place), None) is None
                          for one in schema[word])
            if fitting == 0 or (most and fitting > most):
                yield f"{place}: {fitting} of {word} fit"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{place}: does not match {schema['pattern']}"
    if isinstance(value, list):
        yield from list_mistakes(value, schema, root, place)
    if isinstance(value, dict):
        yield from object_mistakes(value, schema, root, place)


def list_mistakes(value, schema, root, place):
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{place}: {len(value)} items"
    for i, item in enumerate(value):
        yield from mistakes(item, schema.get("items", {}), root, f"{place}[{i}]")


def object_mistakes(value, schema, root, place):
    for key in schema.get("required", []):
        if key not in value:
            yield f"{place}: lacks {key}"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key, item in value.items():
        if key in properties:
            yield from mistakes(item, properties[key], root, f"{place}.{key}")
        elif others is False:
            yield f"{place}: unknown key {key}"
        elif isinstance(others, dict):
            yield from mistakes(item, others, root, f"{place}.{key}")
