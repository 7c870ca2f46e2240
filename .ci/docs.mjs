// Every name that the package exports has a doc comment, and so has every member of it, down to the fields of a literal type:
// editors show them where there is no other documentation at hand. Looks at what is shipped, the .d.ts files of the entries.
import { createRequire } from "node:module";
import { relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const pkg = resolve(fileURLToPath(import.meta.url), "../../pkg");
const ts = createRequire(`${pkg}/package.json`)("typescript");

const entries = ["index", "classic", "http", "nats", "service-worker", "testing"].map((name) => `${pkg}/dist/${name}.d.ts`);
const program = ts.createProgram(entries, { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler });
const checker = program.getTypeChecker();
const modules = entries.map((entry) => {
  const module = checker.getSymbolAtLocation(program.getSourceFile(entry));
  if (module === undefined) throw new Error(`${entry} is not a module: has the package been built?`);
  return module;
});

let seen = 0;
const bare = new Set();

function check(node, name) {
  seen += 1;
  if (ts.getJSDocCommentsAndTags(node).some((doc) => ts.isJSDoc(doc) && doc.comment)) return;
  const file = node.getSourceFile();
  const { line } = file.getLineAndCharacterOfPosition(node.getStart());
  bare.add(`${relative(pkg, file.fileName)}:${line + 1}: ${name}`);
}

/** Checks what has a name inside of a declaration. What is private, inherited or a constructor is nobody's to read. */
function checkMembers(node, owner) {
  ts.forEachChild(node, (child) => {
    const hidden = (ts.getCombinedModifierFlags(child) & ts.ModifierFlags.Private) !== 0 || (child.name !== undefined && ts.isPrivateIdentifier(child.name));
    const isMember = (ts.isTypeElement(child) || ts.isClassElement(child)) && child.name !== undefined;
    const name = isMember ? `${owner}.${child.name.getText()}` : owner;
    if (hidden) return;
    if (isMember) check(child, name);
    checkMembers(child, name);
  });
}

for (const exported of modules.flatMap((module) => checker.getExportsOfModule(module))) {
  const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
  for (const declaration of symbol.declarations ?? []) {
    // A constant's comment stands before the statement; getJSDocCommentsAndTags knows.
    check(declaration, exported.name);
    checkMembers(declaration, exported.name);
  }
}

for (const place of bare) console.error(`${place} has no doc comment`);
console.log(`docs: ${seen - bare.size} of ${seen} exported names and members have a doc comment`);
if (bare.size > 0) process.exit(1);
