import { defineConfig } from "vitest/config";

// Node alone: what is tested here are reducers, which draw nothing. What a person sees is tested in a real browser.
export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: {
    include: ["test/**/*.test.ts"],
    setupFiles: ["test/browser.ts"],
    environment: "node",
    restoreMocks: true,
    testTimeout: 120_000,
  },
});
