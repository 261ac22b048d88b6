// What the drivers share: the tool, and the answer's type.

import { z } from "zod";

export const City = z.object({ city: z.string(), inhabitants: z.number() });
export const Sum = z.object({ a: z.number(), b: z.number() });
export const ADD = {
  type: "object",
  properties: { a: { type: "number" }, b: { type: "number" } },
  required: ["a", "b"],
  additionalProperties: false,
};
export const CITY = {
  type: "object",
  properties: { city: { type: "string" }, inhabitants: { type: "number" } },
  required: ["city", "inhabitants"],
  additionalProperties: false,
};
export const ADD_ASKED = "Add 1 and 2, and 3 and 4.";
export const CITY_ASKED = "Describe a city.";
export const add = ({ a, b }) => a + b;
