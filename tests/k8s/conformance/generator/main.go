// Command generator makes a Go module of upstream's scheduler plugins whose tests record their table cases.
//
//	generator -source MODULE/pkg/scheduler/framework/plugins -out FOLDER PLUGIN...
//
// Each plugin's package is copied into FOLDER/PLUGIN. In the copies of its tests, every loop over a table of cases
// announces each case, and every call of a plugin's extension point inside such a loop also records its arguments and
// its answer; otherwise the tests run as upstream wrote them. A loop without such a call only announces its cases. The
// tests to run are printed as one line of JSON for each package: {"package": ..., "tests": [...], "tables": N}.
//
// Only the standard library is used, so that it runs without a module of its own.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

//go:embed record.go.txt
var recorder string

// methods are the extension points whose calls are recorded; functions are checks that some tests call directly.
var (
	methods   = []string{"PreFilter", "Filter", "PreEnqueue", "PostFilter", "Preempt"}
	functions = []string{"Fits", "isFit"}
)

// caseVariable names the record of the current case in the rewritten loops.
const caseVariable = "upstreamCase"

// edit is text to put in place of source[from:to].
type edit struct {
	from, to int
	text     string
}

// file is one parsed test file.
type file struct {
	path   string
	source []byte
	tree   *ast.File
	set    *token.FileSet
}

func main() {
	source := flag.String("source", "", "folder of upstream's plugins")
	out := flag.String("out", "", "folder to write to")
	flag.Parse()
	for _, plugin := range flag.Args() {
		if err := rewritePackage(filepath.Join(*source, plugin), filepath.Join(*out, plugin)); err != nil {
			fmt.Fprintf(os.Stderr, "generator: %s: %v\n", plugin, err)
			os.Exit(1)
		}
	}
}

// rewritePackage copies a package with rewritten tests and prints which of them to run.
func rewritePackage(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("no Go files in %s", from)
	}
	var files []file
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, "_test.go") {
			if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), source, 0o644); err != nil {
				return err
			}
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file{path, source, tree, set})
	}
	globals := packageVariables(files)
	tests, tables := map[string]bool{}, 0
	for _, f := range files {
		var edits []edit
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil || function.Body == nil || strings.HasPrefix(function.Name.Name, "Benchmark") {
				continue
			}
			found := f.rewriteFunction(function, globals)
			if found.loops == 0 {
				continue
			}
			edits = append(edits, found.edits...)
			tests[testName(function)] = true
			tables += found.loops
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f.path)), apply(f.source, edits), 0o644); err != nil {
			return err
		}
	}
	name := files[0].tree.Name.Name
	text := strings.Replace(recorder, "package recorder", "package "+name, 1)
	if err := os.WriteFile(filepath.Join(to, "upstream_case_record_test.go"), []byte(text), 0o644); err != nil {
		return err
	}
	var names []string
	for test := range tests {
		names = append(names, test)
	}
	sort.Strings(names)
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"package": filepath.Base(to), "tests": names, "tables": tables})
}

// testName is the test that runs a function: some tests only call a function of the same name in lower case.
func testName(function *ast.FuncDecl) string {
	return strings.Replace(function.Name.Name, "test", "Test", 1)
}

// packageVariables are the names of the variables that the test files declare outside of functions.
func packageVariables(files []file) map[string]bool {
	found := map[string]bool{}
	for _, f := range files {
		for _, declaration := range f.tree.Decls {
			if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.VAR {
				for _, name := range declared(&ast.DeclStmt{Decl: general}) {
					found[name] = true
				}
			}
		}
	}
	return found
}

// rewritten is what to change in one function, and in how many loops over tables.
type rewritten struct {
	edits []edit
	loops int
}

// rewriteFunction finds the loops over tables of a function and the calls to record inside them.
func (f file) rewriteFunction(function *ast.FuncDecl, globals map[string]bool) rewritten {
	var found rewritten
	tables := tablesOf(function.Body)
	used := usedGlobals(function, globals)
	var path []ast.Node
	ast.Inspect(function, func(node ast.Node) bool {
		if node == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, node)
		switch node := node.(type) {
		case *ast.RangeStmt:
			if isTableLoop(node, tables) {
				found.loops++
				found.edits = append(found.edits, f.announce(function, node))
			}
		case *ast.CallExpr:
			if insideTableLoop(path, tables) {
				// The table itself is left out: it holds the objects of all the other cases.
				scope := slices.DeleteFunc(scopeOf(path, node.Pos()), func(name string) bool { return tables[name] })
				found.edits = append(found.edits, f.record(node, scopeText(scope, used))...)
			}
		}
		return true
	})
	return found
}

// tablesOf are the variables that hold a literal slice or map of structs.
func tablesOf(body *ast.BlockStmt) map[string]bool {
	found := map[string]bool{}
	note := func(name, value ast.Expr) {
		identifier, isName := name.(*ast.Ident)
		literal, isLiteral := value.(*ast.CompositeLit)
		if isName && isLiteral && holdsStructs(literal.Type) {
			found[identifier.Name] = true
		}
	}
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.AssignStmt:
			if len(node.Lhs) == len(node.Rhs) {
				for i := range node.Lhs {
					note(node.Lhs[i], node.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			if len(node.Names) == len(node.Values) {
				for i := range node.Names {
					note(node.Names[i], node.Values[i])
				}
			}
		}
		return true
	})
	return found
}

// holdsStructs tells whether a type is a slice, array or map of structs, of structs with a name in this package too.
func holdsStructs(expression ast.Expr) bool {
	var element ast.Expr
	switch expression := expression.(type) {
	case *ast.ArrayType:
		element = expression.Elt
	case *ast.MapType:
		element = expression.Value
	}
	switch element := element.(type) {
	case *ast.StructType:
		return true
	case *ast.Ident:
		return !slices.Contains([]string{"bool", "string", "int", "int32", "int64", "any", "error", "byte"}, element.Name)
	}
	return false
}

// isTableLoop tells whether a loop goes over the cases of a table and has each one in a variable.
func isTableLoop(loop *ast.RangeStmt, tables map[string]bool) bool {
	table, ok := loop.X.(*ast.Ident)
	value, named := loop.Value.(*ast.Ident)
	return ok && named && value.Name != "_" && tables[table.Name]
}

func insideTableLoop(path []ast.Node, tables map[string]bool) bool {
	return slices.ContainsFunc(path, func(node ast.Node) bool {
		loop, ok := node.(*ast.RangeStmt)
		return ok && isTableLoop(loop, tables)
	})
}

// usedGlobals are those variables of the package that a function mentions.
func usedGlobals(function *ast.FuncDecl, globals map[string]bool) map[string]bool {
	found := map[string]bool{}
	ast.Inspect(function, func(node ast.Node) bool {
		if name, ok := node.(*ast.Ident); ok && globals[name.Name] {
			found[name.Name] = true
		}
		return true
	})
	return found
}

// announce begins a case at the start of a loop's body. A loop in which nothing is recorded skips the rest.
func (f file) announce(function *ast.FuncDecl, loop *ast.RangeStmt) edit {
	key := "nil"
	if name, ok := loop.Key.(*ast.Ident); ok && name.Name != "_" {
		key = name.Name
	}
	value := loop.Value.(*ast.Ident).Name
	text := fmt.Sprintf(" %s := beginUpstreamCase(%q, %s, &%s); _ = %s;", caseVariable, testName(function), key, value, caseVariable)
	records := false
	ast.Inspect(loop.Body, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		records = records || (ok && recorded(call) != "")
		return true
	})
	if !records {
		text += " if true { continue };"
	}
	at := f.set.Position(loop.Body.Lbrace).Offset + 1
	return edit{at, at, text}
}

// recorded is the name of what a call calls if that is to be recorded, else empty.
func recorded(call *ast.CallExpr) string {
	switch function := call.Fun.(type) {
	case *ast.SelectorExpr:
		if slices.Contains(methods, function.Sel.Name) && len(call.Args) > 1 {
			return function.Sel.Name
		}
	case *ast.Ident:
		if slices.Contains(functions, function.Name) {
			return function.Name
		}
	}
	return ""
}

// record turns RECEIVER.Method(arguments) into upstreamCase.Method(scope, RECEIVER, arguments), and a call of a function
// into upstreamCase.check(scope, call, arguments).
func (f file) record(call *ast.CallExpr, scope string) []edit {
	name := recorded(call)
	if name == "" {
		return nil
	}
	offset := func(position token.Pos) int { return f.set.Position(position).Offset }
	begin := offset(call.Pos())
	if function, ok := call.Fun.(*ast.SelectorExpr); ok {
		return []edit{
			{begin, begin, fmt.Sprintf("%s.%s(%s, ", caseVariable, name, scope)},
			{offset(function.X.End()), offset(call.Lparen) + 1, ", "},
		}
	}
	end := offset(call.End())
	arguments := ""
	for _, argument := range call.Args {
		arguments += ", " + string(f.source[offset(argument.Pos()):offset(argument.End())])
	}
	return []edit{
		{begin, begin, fmt.Sprintf("%s.check(%s, ", caseVariable, scope)},
		{end, end, arguments + ")"},
	}
}

// scopeOf are the local variables that can be named at a position, by the statements that enclose it.
func scopeOf(path []ast.Node, at token.Pos) []string {
	var found []string
	before := func(statements []ast.Stmt) {
		for _, statement := range statements {
			if statement.End() <= at {
				found = append(found, declared(statement)...)
			}
		}
	}
	for _, node := range path {
		switch node := node.(type) {
		case *ast.BlockStmt:
			before(node.List)
		case *ast.CaseClause:
			before(node.Body)
		case *ast.RangeStmt:
			if node.Tok == token.DEFINE && at > node.Body.Pos() {
				found = append(found, names(node.Key, node.Value)...)
			}
		case *ast.IfStmt:
			if node.Init != nil {
				before([]ast.Stmt{node.Init})
			}
		case *ast.ForStmt:
			if node.Init != nil {
				before([]ast.Stmt{node.Init})
			}
		}
	}
	return found
}

// declared are the names of the variables that a statement declares.
func declared(statement ast.Stmt) []string {
	switch statement := statement.(type) {
	case *ast.AssignStmt:
		if statement.Tok == token.DEFINE {
			return names(statement.Lhs...)
		}
	case *ast.DeclStmt:
		general, ok := statement.Decl.(*ast.GenDecl)
		if !ok || general.Tok != token.VAR {
			return nil
		}
		var found []string
		for _, spec := range general.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				found = append(found, names(name)...)
			}
		}
		return found
	}
	return nil
}

func names(expressions ...ast.Expr) []string {
	var found []string
	for _, expression := range expressions {
		if name, ok := expression.(*ast.Ident); ok && name.Name != "_" {
			found = append(found, name.Name)
		}
	}
	return found
}

// scopeText is a map of the addresses of variables, as Go.
func scopeText(local []string, globals map[string]bool) string {
	all := map[string]bool{}
	for _, name := range local {
		all[name] = true
	}
	for name := range globals {
		all[name] = true
	}
	var sorted []string
	for name := range all {
		sorted = append(sorted, name)
	}
	sort.Strings(sorted)
	var text strings.Builder
	text.WriteString("map[string]any{")
	for _, name := range sorted {
		text.WriteString(strconv.Quote(name) + ": &" + name + ", ")
	}
	return text.String() + "}"
}

// apply makes the edits, which do not overlap. At the same place, an earlier one of the list comes first.
func apply(source []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var text []byte
	at := 0
	for _, e := range edits {
		text = append(text, source[at:e.from]...)
		text = append(text, e.text...)
		at = e.to
	}
	return append(text, source[at:]...)
}
