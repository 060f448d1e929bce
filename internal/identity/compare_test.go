package identity

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// hashName is what the code calls the hash of a token, and a token.
var hashName = regexp.MustCompile(`(?i)^(token|sum|hash|secret)$`)

// named is the last name of an expression: hash of g.hash[:].
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.SliceExpr:
		return named(e.X)
	case *ast.ParenExpr:
		return named(e.X)
	}
	return ""
}

// How long a comparison takes must not say how much of a token was right: tokens and their hashes are compared in constant time,
// and by nothing that ends at the first byte that differs.
func TestTokensAreComparedInConstantTime(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && hashName.MatchString(named(n.X)) && hashName.MatchString(named(n.Y)) {
					t.Errorf("%s: %s and %s are compared by %s", set.Position(n.Pos()), named(n.X), named(n.Y), n.Op)
				}
			case *ast.CallExpr:
				switch f := named(n.Fun); f {
				case "ConstantTimeCompare":
					compared++
				case "Equal", "EqualFold", "Compare":
					for _, a := range n.Args {
						if hashName.MatchString(named(a)) {
							t.Errorf("%s: %s is compared by %s", set.Position(n.Pos()), named(a), f)
						}
					}
				}
			}
			return true
		})
	}
	if compared == 0 {
		t.Error("nothing is compared in constant time")
	}
}
