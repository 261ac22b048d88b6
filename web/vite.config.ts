import { defineConfig } from "vite";

// Names without hashes: the built files are committed, and a test compares them byte by byte.
const names = {
  entryFileNames: "assets/[name].js",
  chunkFileNames: "assets/[name].js",
  assetFileNames: "assets/[name][extname]",
};

export default defineConfig({
  build: {
    outDir: "../src/holdfast/web",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: true,
    rolldownOptions: { output: names },
    chunkSizeWarningLimit: 1000,
  },
  worker: { format: "es", rolldownOptions: { output: names } },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
