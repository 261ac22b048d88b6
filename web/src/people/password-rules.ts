/** The rules of a new password, as far as the page can check them. The server also refuses the common ones. */
export const SHORTEST = 10;

export interface Rule {
  name: "long" | "varied" | "unlikeName" | "same";
  isKept: boolean;
}

/** Which rules a new password keeps. `others` are the name and the e-mail address of its account. */
export function rulesOf(password: string, again: string, others: string[]): Rule[] {
  const lowered = password.toLowerCase();
  return [
    { name: "long", isKept: [...password].length >= SHORTEST },
    { name: "varied", isKept: new Set(lowered).size >= 4 },
    {
      name: "unlikeName",
      isKept: password !== "" && !others.some((other) => other && lowered === other.toLowerCase()),
    },
    { name: "same", isKept: password !== "" && password === again },
  ];
}
