// types.mjs PROTO-DIR OUT.ts: the messages of the API as TypeScript, from the .proto files: as Protobuf's JSON has
// them. A field that is not said is missing; 64-bit numbers are texts, enumerators their names.
import { readFileSync, readdirSync, writeFileSync, existsSync } from "node:fs";
import { join } from "node:path";

const SCALARS = {
  double: "number", float: "number", int32: "number", uint32: "number", sint32: "number", fixed32: "number",
  sfixed32: "number", int64: "string", uint64: "string", sint64: "string", fixed64: "string", sfixed64: "string",
  bool: "boolean", string: "string", bytes: "string",
};

// What the page asks for, and what stands in that.
const ROOTS = ["PageFleet", "PageVerdicts", "PageMatrix", "PageTimeline", "PageWhatIf", "GetStatusReply", "GetIterationsReply", "GetMatrixReply",
  "ListAlertsReply", "GetRecoveryReply", "ListSessionsReply", "GetSessionReply", "ListPathsReply", "ListPathHistoryReply",
  "GetTopologyReply", "ExplainReply"];

function tokensOf(text) {
  const plain = text.replace(/\/\*[^]*?\*\//g, " ").replace(/\/\/[^\n]*/g, " ");
  return plain.match(/"[^"]*"|[A-Za-z_][\w.]*|\d+|[{}()=;,<>[\]-]/g) ?? [];
}

function parse(text, file, found) {
  const tokens = tokensOf(text);
  let at = 0;
  const next = () => tokens[at++];
  const expect = (wanted) => {
    const got = next();
    if (got !== wanted) throw new Error(`${file}: '${wanted}' expected, not '${got}'`);
  };
  const skipTo = (wanted) => {
    while (at < tokens.length && next() !== wanted);
  };
  const skipBlock = () => {
    skipTo("{");
    for (let depth = 1; depth > 0 && at < tokens.length; ) {
      const token = next();
      depth += token === "{" ? 1 : token === "}" ? -1 : 0;
    }
  };
  const fieldsOf = (fields) => {
    for (;;) {
      let token = next();
      if (token === "}") return;
      if (token === "reserved" || token === "option") {
        skipTo(";");
        continue;
      }
      if (token === "oneof") {
        next();
        expect("{");
        fieldsOf(fields);
        continue;
      }
      if (token === "message" || token === "enum") throw new Error(`${file}: a nested ${token} is not known here`);
      let repeated = false;
      let key = "";
      if (token === "repeated" || token === "optional") {
        repeated = token === "repeated";
        token = next();
      }
      let type = token;
      if (token === "map") {
        expect("<");
        key = next();
        expect(",");
        type = next();
        expect(">");
      }
      const name = next();
      expect("=");
      skipTo(";");
      fields.push({ name, type: type.split(".").pop(), repeated, key });
    }
  };
  while (at < tokens.length) {
    const token = next();
    if (token === "message") {
      const name = next();
      expect("{");
      const fields = [];
      fieldsOf(fields);
      found.messages.set(name, fields);
    } else if (token === "enum") {
      const name = next();
      expect("{");
      const names = [];
      for (let word = next(); word !== "}"; word = next()) {
        if (/^[A-Z]/.test(word)) names.push(word);
      }
      found.enums.set(name, names);
    } else if (token === "service") {
      skipBlock();
    } else {
      skipTo(";");
    }
  }
}

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

function write(found) {
  const wanted = new Set();
  const want = (name) => {
    if (wanted.has(name) || SCALARS[name]) return;
    wanted.add(name);
    const fields = found.messages.get(name);
    if (!fields && !found.enums.has(name)) throw new Error(`nothing is called ${name}`);
    for (const field of fields ?? []) want(field.type);
  };
  ROOTS.forEach(want);
  let text = "// Made from proto/ by scripts/types.mjs.\n";
  for (const name of [...wanted].sort()) {
    const names = found.enums.get(name);
    if (names) {
      text += `\nexport type ${name} = ${names.map((word) => JSON.stringify(word)).join(" | ")};\n`;
      continue;
    }
    text += `\nexport interface ${name} {\n`;
    for (const field of found.messages.get(name)) {
      const type = SCALARS[field.type] ?? field.type;
      const whole = field.key ? `Record<string, ${type}>` : field.repeated ? `${type}[]` : type;
      text += `  ${camel(field.name)}?: ${whole};\n`;
    }
    text += "}\n";
  }
  return text;
}

const [folder, out] = process.argv.slice(2);
const found = { messages: new Map(), enums: new Map() };
const from = join(folder, "c4/v1");
for (const file of readdirSync(from).filter((name) => name.endsWith(".proto")).sort()) {
  parse(readFileSync(join(from, file), "utf8"), file, found);
}
const text = write(found);
if (!existsSync(out) || readFileSync(out, "utf8") !== text) writeFileSync(out, text);
