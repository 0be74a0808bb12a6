import { defineConfig } from "vite";

// Every address in the page is relative, so that a proxy may put it under any path.
export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: "../build/page-files",
    emptyOutDir: true,
    assetsDir: "assets",
    assetsInlineLimit: 0,
    modulePreload: false,
    target: "es2020",
    reportCompressedSize: true,
  },
});
