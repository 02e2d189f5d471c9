// The same as program.c, in Go: a static program that makes its system calls itself.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 4 {
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		os.Exit(2)
	}
	stat, err := os.Stat(os.Args[1])
	names, err2 := os.ReadDir(os.Args[2])
	if err != nil || err2 != nil {
		os.Exit(3)
	}
	_, absent := os.Stat("absent")
	line := fmt.Sprintf("%s%d bytes, %d names, local %v\n", text, stat.Size(), len(names), absent == nil)
	if os.WriteFile(os.Args[3], []byte(line), 0o666) != nil {
		os.Exit(4)
	}
	fmt.Println("done")
}
