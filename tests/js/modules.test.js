// What the page loads are modules that a browser can load by themselves: no page is needed to read one.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

const folder = new URL("../../components/static/", import.meta.url);
const modules = readdirSync(folder).filter((name) => name.endsWith(".js"));

for (const name of modules) {
  test(`${name} loads without a page, and asks for no file but its neighbours`, async () => {
    await import(new URL(name, folder));
    const text = readFileSync(new URL(name, folder), "utf8");
    const asked = [...text.matchAll(/^(?:import|export)\b[^;]*?\bfrom\s+"([^"]+)"/gm)].map((m) => m[1]);
    for (const path of asked) assert.ok(modules.includes(path.replace("./", "")), path);
  });
}
