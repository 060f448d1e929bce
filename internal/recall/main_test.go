package recall

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is the MCP server, too, when it is called as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "mcp-server" {
		serveMCP(os.Args[2], os.Args[3], os.Args[4:])
		return
	}
	goleak.VerifyTestMain(m)
}
