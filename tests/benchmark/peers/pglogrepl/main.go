// Decode a capture in copydata framing with pglogrepl: only parsed, or typed by pgx as well.
//
//	go run . [-typed] [-runs 3] CAPTURE
//
// Prints the seconds of each run, and the number of row changes, as JSON.
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"log"
	"os"
	"runtime"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"
)

func main() {
	typed := flag.Bool("typed", false, "decode the values too")
	runs := flag.Int("runs", 3, "how many times")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	data, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	seconds := []float64{}
	changes := 0
	for run := 0; run <= *runs; run++ {
		began := time.Now()
		changes = decode(data, *typed)
		if run > 0 { // the first one warms up
			seconds = append(seconds, time.Since(began).Seconds())
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"seconds": seconds, "changes": changes}); err != nil {
		log.Fatal(err)
	}
}

func decode(data []byte, typed bool) int {
	const header, frame = 5, 25
	relations := map[uint32]*pglogrepl.RelationMessage{}
	types := pgtype.NewMap()
	changes := 0
	for at := 0; at < len(data); {
		end := at + 1 + int(binary.BigEndian.Uint32(data[at+1:]))
		message, err := pglogrepl.Parse(data[at+header+frame : end])
		if err != nil {
			log.Fatal(err)
		}
		at = end
		switch message := message.(type) {
		case *pglogrepl.RelationMessage:
			relations[message.RelationID] = message
		case *pglogrepl.InsertMessage:
			changes++
			if typed {
				values(types, relations[message.RelationID], message.Tuple)
			}
		case *pglogrepl.UpdateMessage:
			changes++
			if typed {
				values(types, relations[message.RelationID], message.NewTuple)
			}
		case *pglogrepl.DeleteMessage:
			changes++
		}
	}
	return changes
}

// values reads a row as pglogrepl's own example does.
func values(types *pgtype.Map, relation *pglogrepl.RelationMessage, tuple *pglogrepl.TupleData) map[string]any {
	row := map[string]any{}
	for number, column := range tuple.Columns {
		name := relation.Columns[number].Name
		if column.DataType != pglogrepl.TupleDataTypeText {
			row[name] = nil
			continue
		}
		oid := relation.Columns[number].DataType
		if known, ok := types.TypeForOID(oid); ok {
			value, err := known.Codec.DecodeValue(types, oid, pgtype.TextFormatCode, column.Data)
			if err != nil {
				log.Fatal(err)
			}
			row[name] = value
		} else {
			row[name] = string(column.Data)
		}
	}
	return row
}
