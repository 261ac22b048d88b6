import { beforeEach, describe, expect, test, vi } from "vitest";
import { type ApiError, call, isSignedOut } from "../src/api";
import { browserOf } from "../src/people/browser-names";
import { nextPath } from "../src/people/passing";
import { rulesOf } from "../src/people/password-rules";
import { patternsIn } from "../src/people/patterns";
import { caller, isAdmin, isGuest, isPerson } from "../src/state/caller";
import { forgetDrafts, keepDraft, readDraft } from "../src/state/drafts";

const ORIGIN = "https://chat.example";

describe("where a sign-in leads", () => {
  test.each([
    ["/s/ses_1#msg_2", "/s/ses_1#msg_2"],
    ["/admin/people?x=1", "/admin/people?x=1"],
    ["", "/"],
    ["settings", "/"],
    ["//there.example/", "/"],
    ["/\\there.example/", "/"],
    ["/\t/there.example/", "/"],
    ["https://there.example/", "/"],
    ["javascript:alert(1)", "/"],
    ["/.//there.example", "/"],
  ])("%j leads to %j", (wanted, path) => {
    expect(nextPath(`?${new URLSearchParams({ next: wanted })}`, ORIGIN)).toBe(path);
  });
});

describe("a new password", () => {
  const kept = (...args: Parameters<typeof rulesOf>) =>
    rulesOf(...args)
      .filter(({ isKept }) => isKept)
      .map(({ name }) => name);

  test("an empty one keeps no rule", () => {
    expect(kept("", "", ["ada"])).toEqual([]);
  });

  test("each rule is kept by itself", () => {
    expect(kept("abcd", "", [])).toEqual(["varied", "unlikeName"]);
    expect(kept("aaaaaaaaaa", "aaaaaaaaaa", [])).toEqual(["long", "unlikeName", "same"]);
    expect(kept("Ada.Lovelace", "Ada.Lovelace", ["ada.lovelace", ""])).toEqual(["long", "varied", "same"]);
    expect(kept("correct horse", "correct horse", ["ada"])).toEqual(["long", "varied", "unlikeName", "same"]);
  });
});

test("patterns are separated by commas or blanks, and none means no limit", () => {
  expect(patternsIn(" openai/*,  local/* \n")).toEqual(["openai/*", "local/*"]);
  expect(patternsIn(" , ")).toBeNull();
  expect(patternsIn(null)).toBeNull();
});

test("a browser is named by its user agent, though most name others too", () => {
  const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/149.0 Safari/537.36";
  expect(browserOf(chrome)).toBe("Chrome, Linux");
  expect(browserOf(chrome.replace("X11; Linux x86_64", "Windows NT 10.0; Win64").concat(" Edg/149.0"))).toBe(
    "Edge, Windows",
  );
  expect(browserOf("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605 Safari/604")).toBe(
    "Safari, iOS",
  );
  expect(browserOf("curl/8.5.0")).toBe("curl");
  expect(browserOf("")).toBeNull();
});

test("what a caller may do follows from who it is", () => {
  const shown = (via: "local" | "key" | "sign_in", role: "guest" | "member" | "admin") => {
    caller.value = {
      owner: "o",
      local: via === "local",
      admin: role === "admin",
      name: "n",
      role,
      via,
      account: null,
      scopes: [],
      lacks_second_factor: false,
    };
    return { isPerson: isPerson.value, isGuest: isGuest.value, isAdmin: isAdmin.value };
  };
  expect(shown("local", "admin")).toEqual({ isPerson: false, isGuest: false, isAdmin: false });
  expect(shown("key", "admin")).toEqual({ isPerson: false, isGuest: false, isAdmin: true });
  expect(shown("sign_in", "member")).toEqual({ isPerson: true, isGuest: false, isAdmin: false });
  expect(shown("sign_in", "guest")).toEqual({ isPerson: true, isGuest: true, isAdmin: false });
});

test("a sign-out leaves no draft behind", () => {
  keepDraft("s", "secret");
  localStorage.setItem("holdfast.theme", "dark");
  forgetDrafts();

  expect(readDraft("s")).toBe("");
  expect(localStorage.getItem("holdfast.theme")).toBe("dark");
});

describe("a refused call", () => {
  beforeEach(() => {
    isSignedOut.value = false;
  });
  const refuse = (status: number, code: string, headers: Record<string, string> = {}) =>
    vi.stubGlobal("fetch", async () => {
      const error = { message: "no", type: "authentication_error", code, param: null };
      return Response.json({ error }, { status, headers });
    });

  test("asks to sign in, unless only a password was wrong", async () => {
    refuse(401, "wrong_password");
    await expect(call("PUT", "/api/account/password")).rejects.toThrow("no");
    expect(isSignedOut.value).toBe(false);
    refuse(401, "signed_out");
    await expect(call("GET", "/api/sessions")).rejects.toThrow("no");
    expect(isSignedOut.value).toBe(true);
  });

  test("says how long to wait, if the server has said so", async () => {
    refuse(429, "too_many_tries", { "retry-after": "15" });
    const error = await call("POST", "/api/sign-in").catch((problem: unknown) => problem);
    expect((error as ApiError).retryAfter).toBe(15);
    expect(isSignedOut.value).toBe(false);
  });
});
